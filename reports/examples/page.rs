//! Writes the page of a report: `cargo run -p memgate-reports --example page report.json
//! report.html`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (from, to) = (arguments.next().ok_or("which report?")?, arguments.next().ok_or("to where?")?);
    let report = memgate_reports::from_json(&std::fs::read(from)?)?;
    std::fs::write(to, memgate_reports::html(&report)?)?;
    Ok(())
}
