//! Time to render pages, and space of the stored values, by the number of runs and tests:
//! `cargo bench -p memgate-server --bench pages [-- runs [tests [address]]]`.
//!
//! One line, a commit per run, tests with ten metrics, of which two are noisy; one test in a hundred leaks, one leak
//! comes and goes. 2,000 runs of 5,000 tests are 10⁸ values. Printed: bytes per value (of a SQLite file), then for each
//! page the milliseconds from the first statement to the last byte (median and longest of five), and its bytes.

mod line;

use std::io::Write as _;
use std::time::Instant;

use memgate_model::{Metric, RunReport};
use memgate_server::pages;
use memgate_server::store::{Choice, Store};
use memgate_server::view::{LeakFilter, Order};
use serde_json::Value;

const METRICS: usize = 10;
/// Noisy metrics among them: their values vary within some per cent.
const NOISY: usize = 2;
const TIMES: usize = 5;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |at: usize, default| arguments.get(at).map_or(Ok(default), |text: &String| text.parse());
    let (runs, tests) = (number(0, 200)?, number(1, 5_000)?);
    let folder = std::env::temp_dir().join(format!("memgate-pages-{}", std::process::id()));
    let file = folder.join("history.db");
    let address = arguments.get(2).cloned().unwrap_or_else(|| format!("sqlite:{}", file.display()));
    let measured = tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let store = Store::open(&address).await?;
        fill(&store, runs, tests).await?;
        let values = (runs * tests * METRICS) as f64;
        if let Ok(about) = std::fs::metadata(&file) {
            let beside = std::fs::metadata(file.with_extension("db-wal")).map_or(0, |about| about.len());
            let bytes = (about.len() + beside) as f64;
            writeln!(
                std::io::stdout(),
                "{values:.2e} values, {:.2} bytes each, {:.1} KB a run",
                bytes / values,
                bytes / runs as f64 / 1e3
            )?;
        }
        show(&store).await?;
        store.close().await;
        Ok(())
    });
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    measured
}

async fn fill(store: &Store, runs: usize, tests: usize) -> Result<(), Failed> {
    let mut random = 1_u64;
    let mut noise = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as f64 / f64::from(1 << 24)
    };
    let began = Instant::now();
    for number in 0..runs {
        store.add(&line::manifest(number), &report(number, tests, &mut noise)?).await?;
        if (number + 1) % 100 == 0 {
            writeln!(std::io::stderr(), "{} of {runs} runs in {} s", number + 1, began.elapsed().as_secs())?;
        }
    }
    Ok(())
}

async fn show(store: &Store) -> Result<(), Failed> {
    let mut out = std::io::stdout();
    let choice = Choice { branch: "main".into(), ..Choice::default() };
    let listed = store.runs("bench", &choice, None).await?.ok_or("no runs")?.runs;
    let (last, before) = (listed[0].run, listed[1].run);
    writeln!(out, "{:>10} {:>10} {:>10} {:>10}", "page", "median ms", "longest ms", "bytes")?;
    for page in ["overview", "leaks", "leak", "runs", "run", "test", "noisy", "compare", "tune"] {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for _ in 0..TIMES {
            let began = Instant::now();
            let filter = LeakFilter::default();
            let test = |metric| store.test("bench", &choice, "engine", "Suite0.test_7", Some(metric));
            let html = match page {
                "overview" => store.overview("bench", &choice).await?.as_ref().map(pages::overview),
                "leaks" => {
                    store.leaks("bench", &choice, &filter).await?.map(|view| pages::leaks(&view, &filter))
                }
                "leak" => store.leak("bench", &choice, "n1-steady-7").await?.as_ref().map(pages::leak),
                "runs" => store.runs("bench", &choice, None).await?.as_ref().map(pages::runs),
                "run" => store.run("bench", last, Order::Worst, "").await?.as_ref().map(pages::run),
                "test" => test(metrics()[NOISY]).await?.as_ref().map(pages::test),
                "noisy" => test(metrics()[0]).await?.as_ref().map(pages::test),
                "compare" => store.compare("bench", before, last).await?.as_ref().map(pages::compare),
                _ => store.series("bench", &choice).await?.as_ref().map(pages::tune),
            };
            bytes = html.ok_or_else(|| format!("there is no page {page}"))?.len();
            taken.push(began.elapsed().as_secs_f64() * 1e3);
        }
        taken.sort_by(f64::total_cmp);
        writeln!(out, "{page:>10} {:>10.0} {:>10.0} {bytes:>10}", taken[TIMES / 2], taken[TIMES - 1])?;
    }
    Ok(())
}

/// The metrics, noisy ones first.
fn metrics() -> Vec<Metric> {
    let noisy = |metric: &Metric| metric.name().starts_with("os.") || metric.name() == "java.heap_used";
    let (noisy, exact): (Vec<_>, Vec<_>) = Metric::ALL.into_iter().partition(noisy);
    noisy.into_iter().take(NOISY).chain(exact.into_iter().take(METRICS - NOISY)).collect()
}

fn report(number: usize, tests: usize, noise: &mut impl FnMut() -> f64) -> Result<RunReport, Failed> {
    let metrics = metrics();
    let test = |at: usize| {
        let mut leaks = Vec::new();
        if at % 100 == 7 {
            leaks.push(line::leak(&format!("n1-steady-{at}")));
        }
        if at == 20 && number.is_multiple_of(2) {
            leaks.push(line::leak("n1-flaky"));
        }
        let exact = 49152.0 * leaks.len() as f64;
        let mut figures = serde_json::Map::new();
        for (place, metric) in metrics.iter().enumerate() {
            let value = if place < NOISY { (1e6 * (1.0 + noise() / 10.0)).round() } else { exact };
            figures.insert(metric.name().to_owned(), line::figure(value, "bytes"));
        }
        line::test(at, &Value::Object(figures), &leaks)
    };
    line::report(number, &(0..tests).map(test).collect::<Vec<_>>())
}
