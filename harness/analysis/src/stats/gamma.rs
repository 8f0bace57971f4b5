//! Quantiles of the gamma distribution.

use super::normal_quantile;

/// Above this shape, the cube root of the variable is nearly normal (Wilson and Hilferty).
const NEARLY_NORMAL: f64 = 1_000.0;

/// The value `x` for which a variable of this shape (and scale 1) is at most `x` with the probability `p`. Shape: above
/// 0; `p`: above 0, below 1.
#[must_use]
pub fn gamma_quantile(p: f64, shape: f64) -> f64 {
    if shape > NEARLY_NORMAL {
        let root = 1.0 - 1.0 / (9.0 * shape) + normal_quantile(p) / (3.0 * shape.sqrt());
        return shape * root.max(0.0).powi(3);
    }
    let (mut low, mut high) = (0.0, shape.max(1.0));
    while at_most(high, shape) < p && high < f64::MAX / 2.0 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if at_most(middle, shape) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability of a value of at most `x`: the regularised lower incomplete gamma function.
fn at_most(x: f64, shape: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = (shape * x.ln() - x - ln_gamma(shape)).exp();
    if x < shape + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * f64::EPSILON {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return front * sum;
    }
    // Continued fraction of the upper incomplete gamma function, by Lentz's method.
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (f64::MAX, 1.0 / b);
    let mut fraction = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let a = -i * (i - shape);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    1.0 - front * fraction
}

/// The logarithm of the gamma function, for arguments above 0 (Lanczos, g = 7).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let (sum, _) =
        COEFFICIENTS.iter().fold((0.999_999_999_999_809_9, x), |(sum, at), c| (sum + c / at, at + 1.0));
    let t = x + 6.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x - 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables_of_chi_squared() {
        // A chi-squared variable with n degrees of freedom is twice a gamma variable of shape n / 2.
        for (degrees, p, expected) in [
            (1.0, 0.95, 3.841_458_821),
            (2.0, 0.05, 0.102_586_589),
            (2.0, 0.995, 10.596_634_733),
            (10.0, 0.005, 2.155_856_481),
            (10.0, 0.995, 25.188_179_572),
            (100.0, 0.025, 74.221_927_475),
            (100.0, 0.975, 129.561_197_187),
        ] {
            let found = 2.0 * gamma_quantile(p, degrees / 2.0);
            assert!((found / expected - 1.0).abs() < 1e-8, "{degrees} {p}: {found}");
        }
    }

    #[test]
    fn both_ways_agree_where_they_meet() {
        for p in [0.005, 0.5, 0.995] {
            let (below, above) =
                (gamma_quantile(p, NEARLY_NORMAL), gamma_quantile(p, NEARLY_NORMAL * 1.000_001));
            assert!((below / above - 1.0).abs() < 1e-5, "{p}: {below} {above}");
        }
    }

    #[test]
    fn extreme_arguments_end() {
        for shape in [1e-9, 1e-3, 1.0, 1e3, 1e300] {
            for p in [1e-12, 0.5, 1.0 - 1e-12] {
                assert!(gamma_quantile(p, shape) >= 0.0, "{shape} {p}");
            }
        }
    }
}
