//! Writes samples as `OpenMetrics`, and as the older text format of Prometheus.
//! Touches: its arguments.
//! Law: no two samples have the same name and labels, whatever slices are called.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows, until its slice or program ends.
    Counter,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, without unit and `_total`.
    pub name: &'static str,
    /// Its unit, the last part of its name.
    pub unit: Option<&'static str>,
    /// Its type.
    pub kind: Type,
    /// Its labels, in words.
    pub labels: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

impl Family {
    /// Returns the name of its samples.
    #[must_use]
    pub fn full_name(&self) -> String {
        let mut name = self.name.to_owned();
        for part in self.unit.into_iter().chain(self.suffix()) {
            name.push('_');
            name.push_str(part);
        }
        name
    }

    fn suffix(&self) -> Option<&'static str> {
        (self.kind == Type::Counter).then_some("total")
    }
}

/// Labels with their values. Empty values are left out: for Prometheus they are the same.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Part(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Part(value)
    }
}

impl Value {
    fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Whole(one), Value::Whole(two)) => Value::Whole(one.saturating_add(two)),
            (one, two) => Value::Part(one.float() + two.float()),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus has no other numbers"
    )]
    fn float(self) -> f64 {
        match self {
            Value::Whole(whole) => whole as f64,
            Value::Part(part) => part,
        }
    }
}

/// The labels of a sample: shared ones, and one more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    labels: Arc<Labels>,
    more: Option<(&'static str, &'static str)>,
}

impl Key {
    fn is_empty(&self) -> bool {
        self.more.is_none() && self.labels.iter().all(|(_, value)| value.is_empty())
    }
}

impl EncodeLabelSet for Key {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let shared = self.labels.iter().filter(|(_, value)| !value.is_empty());
        for (name, value) in shared {
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        match self.more {
            Some(more) => more.encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

/// The samples of one moment.
#[derive(Debug, Default)]
pub(super) struct Samples {
    families: Vec<(Family, OfFamily)>,
}

/// The samples of a metric, in the order in which they came.
#[derive(Debug, Default)]
struct OfFamily {
    samples: Vec<(Key, Value)>,
    places: HashMap<Key, usize>,
}

impl OfFamily {
    fn add(&mut self, key: Key, value: Value) {
        let known = self.places.get(&key).copied();
        match known.and_then(|place| self.samples.get_mut(place)) {
            Some((_, sum)) => *sum = sum.plus(value),
            None => {
                self.places.insert(key.clone(), self.samples.len());
                self.samples.push((key, value));
            }
        }
    }
}

impl Samples {
    /// Adds a sample. The values of samples with the same name and labels are added up.
    pub(super) fn add(&mut self, family: &Family, labels: &Arc<Labels>, value: impl Into<Value>) {
        self.add_with(family, labels, None, value);
    }

    /// Like [`Samples::add`], with one more label.
    pub(super) fn add_with(
        &mut self,
        family: &Family,
        labels: &Arc<Labels>,
        more: Option<(&'static str, &'static str)>,
        value: impl Into<Value>,
    ) {
        let known = |(known, _): &(Family, _)| known.full_name_is(family);
        let place = self.families.iter().position(known);
        let place = place.unwrap_or_else(|| {
            self.families.push((*family, OfFamily::default()));
            self.families.len().saturating_sub(1)
        });
        let labels = Arc::clone(labels);
        if let Some((_, samples)) = self.families.get_mut(place) {
            samples.add(Key { labels, more }, value.into());
        }
    }

    /// Returns the number of samples.
    pub(super) fn count(&self) -> usize {
        let each = self.families.iter().map(|(_, of)| of.samples.len());
        each.sum()
    }

    /// Returns the text in the format `OpenMetrics` 1.0.
    ///
    /// # Errors
    /// Never: a text in memory can be written.
    pub(super) fn openmetrics(self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(self.count().saturating_mul(192));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Family {
    fn full_name_is(&self, other: &Family) -> bool {
        (self.name, self.unit, self.kind) == (other.name, other.unit, other.kind)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, samples) in &self.families {
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match family.kind {
                Type::Gauge => MetricType::Gauge,
                Type::Counter => MetricType::Counter,
            };
            let mut metric =
                encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
            for (key, value) in &samples.samples {
                match key.is_empty() {
                    true => write(&mut metric, family.kind, *value)?,
                    false => write(&mut metric.encode_family(key)?, family.kind, *value)?,
                }
            }
        }
        Ok(())
    }
}

fn write(sample: &mut MetricEncoder<'_>, kind: Type, value: Value) -> fmt::Result {
    let none: Option<&Exemplar<[(&str, &str); 0], f64>> = None;
    match (kind, value) {
        (Type::Gauge, Value::Whole(value)) => sample.encode_gauge(&value),
        (Type::Gauge, Value::Part(value)) => sample.encode_gauge(&value),
        (Type::Counter, Value::Whole(value)) => sample.encode_counter(&value, none),
        (Type::Counter, Value::Part(value)) => sample.encode_counter(&value, none),
    }
}

/// Turns `OpenMetrics` into the text format 0.0.4 of Prometheus, which the textfile collector reads:
/// a counter is described under the name of its samples, and units are not described.
pub(super) fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // A description comes before the type, so it waits for the next line.
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (word, name) = (words.next(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match word {
            Some("HELP") => help = Some((name, rest)),
            Some("TYPE") => {
                let suffix = match rest {
                    "counter" => "_total",
                    _ => "",
                };
                if let Some((named, about)) = help.take() {
                    text.push_str(&format!("# HELP {named}{suffix} {about}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {rest}\n"));
            }
            // "# UNIT", and "# EOF".
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Family = Family {
        name: "a_used",
        unit: Some("bytes"),
        kind: Type::Gauge,
        labels: "",
        help: "Bytes.",
    };
    const COUNT: Family = Family {
        name: "a_drops",
        unit: None,
        kind: Type::Counter,
        labels: "",
        help: "Drops.",
    };

    fn labels(value: &str) -> Arc<Labels> {
        Arc::new(vec![("slice", value.to_owned()), ("pod", String::new())])
    }

    #[test]
    fn samples_are_written_in_both_formats() {
        let mut samples = Samples::default();
        samples.add_with(&BYTES, &labels("one"), Some(("kind", "linear")), 8u64 << 30);
        samples.add(&COUNT, &labels(""), 3u64);
        samples.add(&BYTES, &labels("two"), 0.5);
        assert_eq!(samples.count(), 3);
        let text = samples.openmetrics().unwrap();
        let expected = "# HELP a_used_bytes Bytes.\n# TYPE a_used_bytes gauge\n\
            # UNIT a_used_bytes bytes\n\
            a_used_bytes{slice=\"one\",kind=\"linear\"} 8589934592\n\
            a_used_bytes{slice=\"two\"} 0.5\n\
            # HELP a_drops Drops.\n# TYPE a_drops counter\na_drops_total 3\n# EOF\n";
        assert_eq!(text, expected);
        let expected = "# HELP a_used_bytes Bytes.\n# TYPE a_used_bytes gauge\n\
            a_used_bytes{slice=\"one\",kind=\"linear\"} 8589934592\n\
            a_used_bytes{slice=\"two\"} 0.5\n\
            # HELP a_drops_total Drops.\n# TYPE a_drops_total counter\na_drops_total 3\n";
        assert_eq!(prometheus_text(&text), expected);
    }

    #[test]
    fn a_name_cannot_add_samples_or_end_a_label() {
        let mut samples = Samples::default();
        let hostile = "a\"} 1\nb_bytes{x=\"\\";
        samples.add(&BYTES, &labels(hostile), 1u64);
        let text = samples.openmetrics().unwrap();
        let line = "a_used_bytes{slice=\"a\\\"} 1\\nb_bytes{x=\\\"\\\\\"} 1";
        assert!(text.lines().any(|one| one == line), "{text}");
    }

    #[test]
    fn equal_labels_are_one_sample() {
        let mut samples = Samples::default();
        samples.add(&BYTES, &labels("one"), 1u64);
        samples.add(&BYTES, &labels("one"), 2u64);
        assert_eq!(samples.count(), 1);
        let text = samples.openmetrics().unwrap();
        assert!(text.contains("a_used_bytes{slice=\"one\"} 3\n"), "{text}");
    }
}
