//! Many rows with few statements: each costs a round trip.

use sqlx::{AnyConnection, AssertSqlSafe};

/// So many rows at once, the most first: few sizes, so that a connection keeps the plans of few texts.
const SIZES: [usize; 12] = [64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1];

pub(super) enum Value {
    Number(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    /// Not every database keeps what is no number.
    fn from(real: f64) -> Self {
        Self::Real(if real.is_finite() { real } else { 0.0 })
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Executes a statement, which adds one row, for all of these. Rows that meet in `ON CONFLICT` have different keys.
pub(super) async fn add<const N: usize>(
    connection: &mut AnyConnection,
    statement: &'static str,
    mut rows: Vec<[Value; N]>,
) -> Result<(), sqlx::Error> {
    for size in SIZES {
        if rows.len() < size {
            continue;
        }
        let text = repeated(statement, N, size);
        while rows.len() >= size {
            let rest = rows.split_off(size);
            let mut query = sqlx::query(AssertSqlSafe(text.clone()));
            for value in std::mem::replace(&mut rows, rest).into_iter().flatten() {
                query = match value {
                    Value::Number(number) => query.bind(number),
                    Value::Real(real) => query.bind(real),
                    Value::Text(text) => query.bind(text),
                    Value::Bytes(bytes) => query.bind(bytes),
                };
            }
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// The statement for so many rows of so many parameters each.
fn repeated(statement: &str, columns: usize, rows: usize) -> String {
    let rows_of = |rows: usize| {
        let mut text = String::with_capacity(8 * columns * rows);
        for parameter in 0..columns * rows {
            text.push_str(match parameter {
                0 => "($",
                first if first % columns == 0 => "), ($",
                _ => ", $",
            });
            text.push_str(&(parameter + 1).to_string());
        }
        text + ")"
    };
    statement.replacen(&rows_of(1), &rows_of(rows), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_repeated_with_what_follows_its_row() {
        let statement = "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO NOTHING";
        assert_eq!(repeated(statement, 2, 1), statement);
        assert_eq!(
            repeated(statement, 2, 3),
            "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4), ($5, $6) ON CONFLICT (a) DO NOTHING"
        );
    }
}
