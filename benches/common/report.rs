//! The figures: a table to read, and lines of JSON for `.ci/assemble-results.py`.

use std::fs::File;
use std::io::Write;

use crate::Answer;

/// One run's two times, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) base: f64,
}

/// Which way a figure divides.
#[derive(Clone, Copy)]
pub(crate) enum Ratio {
    /// How many times the base's cost is ours.
    OfOurs,
    /// How much of what the base allows we reach.
    OfBase,
}

pub(crate) struct Report {
    json: Option<File>,
}

impl Report {
    /// Begins the file with the commit that this was built from.
    pub(crate) fn new(json: Option<&str>) -> Answer<Self> {
        let mut json = json.map(File::create).transpose()?;
        if let Some(json) = &mut json {
            let commit = option_env!("HEADWATER_COMMIT").unwrap_or("unknown");
            writeln!(json, "{{\"commit\": {commit:?}}}")?;
        }
        println!("{:36} {:>8} {:>9} {:>9}  runs", "figure", "value", "ours", "base");
        Ok(Report { json })
    }

    /// A figure beside a base. The value is the median of the runs' ratios; ours and base are
    /// those of that very run.
    pub(crate) fn ratio(
        &mut self,
        id: &str,
        ratio: Ratio,
        base_is: &str,
        pairs: &[Pair],
    ) -> Answer<()> {
        let of = |pair: &Pair| match ratio {
            Ratio::OfOurs => pair.ours / pair.base,
            Ratio::OfBase => pair.base / pair.ours,
        };
        let mut sorted = pairs.to_vec();
        sorted.sort_by(|a, b| of(a).total_cmp(&of(b)));
        let middle = sorted.get(sorted.len() / 2).ok_or(format!("{id} has no runs"))?;
        let runs: Vec<f64> = pairs.iter().map(of).collect();
        self.figure(id, of(middle), Some(*middle), "us", base_is, &runs)
    }

    /// A figure that stands by itself; the value is the median of the runs.
    pub(crate) fn number(&mut self, id: &str, unit: &str, runs: &[f64]) -> Answer<()> {
        self.figure(id, percentile(runs, 0.5), None, unit, "", runs)
    }

    /// What one side takes, where a dry run has no other.
    pub(crate) fn ours_alone(&self, id: &str, runs: impl Iterator<Item = f64>) {
        let runs: Vec<f64> = runs.collect();
        println!("{id:36} {:>8} {:9.3} {:>9}", "-", percentile(&runs, 0.5), "-");
    }

    fn figure(
        &mut self,
        id: &str,
        value: f64,
        pair: Option<Pair>,
        unit: &str,
        base_is: &str,
        runs: &[f64],
    ) -> Answer<()> {
        if !value.is_finite() || runs.len().is_multiple_of(2) {
            return Err(format!("{id}: {value} of {runs:?} is no median to report").into());
        }
        let listed = |digits: usize| {
            let listed: Vec<_> = runs.iter().map(|run| format!("{run:.digits$}")).collect();
            listed.join(", ")
        };
        let times = pair
            .map_or(format!("{:>9} {:>9}", "", ""), |p| format!("{:9.3} {:9.3}", p.ours, p.base));
        println!("{id:36} {value:8.3} {times}  {} [{unit}]", listed(3));
        let Some(json) = &mut self.json else { return Ok(()) };
        let times = match pair {
            Some(Pair { ours, base }) => {
                format!("\"ours\": {ours:.4}, \"base\": {base:.4}, \"base_is\": {base_is:?}")
            }
            None => format!("\"ours\": {value:.4}, \"base\": null, \"base_is\": null"),
        };
        writeln!(
            json,
            "{{\"id\": {id:?}, \"value\": {value:.4}, {times}, \"unit\": {unit:?}, \
             \"runs\": [{}]}}",
            listed(4)
        )?;
        json.flush()?;
        Ok(())
    }
}

/// The value that `share` of the values lie below; NaN of none.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
