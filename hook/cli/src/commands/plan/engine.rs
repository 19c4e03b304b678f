//! Estimates the memory that an inference engine takes in a slice, from its flags.
//! Touches: its arguments.
//! Law: only the engines' own arithmetic, and an upper bound. Activations, CUDA graphs, and what
//! else an engine allocates before it sizes its cache, are not known here.
//!
//! vLLM 0.33 (`mem_utils.py`, `gpu_worker.py`): the cache is `ceil(utilisation * TOTAL)`, less all
//! that was allocated since the start and the activations' peak. It refuses to start if FREE is less
//! than that product. `--kv-cache-memory-bytes` sets the size of the cache instead. SGLang 0.5: the
//! cache is FREE after the weights were loaded, less `(1 - fraction)` of FREE before.
//! `tests/engines` runs both in slices.

use crate::base::text::printable;
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// An engine whose arithmetic is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Vllm,
    Sglang,
}

impl Engine {
    /// The engine's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Engine::Vllm => "vLLM",
            Engine::Sglang => "SGLang",
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Engine::Vllm => "--gpu-memory-utilization",
            Engine::Sglang => "--mem-fraction-static",
        }
    }
}

/// A fraction of memory, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction(u64);

const MILLION: u64 = 1_000_000;

/// vLLM's utilisation where no flag sets it.
const VLLM_DEFAULT: Fraction = Fraction(920_000);

impl Fraction {
    /// Parses a decimal number from 0 to 1, to six places.
    fn parse(text: &str) -> Option<Fraction> {
        let (whole, places) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if text.len() > 32 || whole.len().max(places.len()) == 0 {
            return None;
        }
        if !is_number(whole) || !is_number(places) {
            return None;
        }
        let digits = places.bytes().chain(std::iter::repeat(b'0')).take(6);
        let places = digits.fold(0_u64, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u64::from(digit.saturating_sub(b'0')))
        });
        let whole = match whole {
            "" => 0,
            whole => whole.parse::<u64>().ok()?,
        };
        let millionths = whole.checked_mul(MILLION)?.checked_add(places)?;
        (millionths <= MILLION).then_some(Fraction(millionths))
    }

    /// Returns that fraction of an amount, rounded up.
    fn of(self, amount: Bytes) -> Bytes {
        let product = u128::from(amount.get()).saturating_mul(u128::from(self.0));
        let taken = product.div_ceil(u128::from(MILLION));
        Bytes::new(u64::try_from(taken).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, places) = (self.0 / MILLION, format!("{:06}", self.0 % MILLION));
        match places.trim_end_matches('0') {
            "" => write!(out, "{whole}.0"),
            places => write!(out, "{whole}.{places}"),
        }
    }
}

/// The setting that sizes an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizing {
    /// The engine's flag.
    Flag(Fraction),
    /// The engine's default.
    Default(Fraction),
    /// `--kv-cache-memory-bytes`.
    Cache(Bytes),
    /// A flag whose value the engine does not accept.
    Invalid,
}

impl Sizing {
    /// Returns the fraction, if one sizes the cache.
    pub(super) fn fraction(self) -> Option<Fraction> {
        match self {
            Sizing::Flag(fraction) | Sizing::Default(fraction) => Some(fraction),
            Sizing::Cache(_) | Sizing::Invalid => None,
        }
    }
}

/// The memory that an engine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) engine: Engine,
    /// The flag, or the engine's default, that sizes the cache.
    pub(super) sizing: Sizing,
    /// The amount of which the fraction is taken.
    pub(super) whole: Bytes,
    /// That fraction: the most for weights, cache and the rest. With a cache of a given size: the
    /// cache and the weights.
    pub(super) taken: Bytes,
    pub(super) weights: Option<Bytes>,
    /// The most that the cache can be; None if the weights are not known.
    pub(super) cache: Option<Bytes>,
    /// What FREE exceeds the fraction by at the start: the most for a context and libraries.
    pub(super) spare: Bytes,
    /// Why the engine cannot start.
    pub(super) fault: Option<String>,
}

/// Estimates the engine that a command starts in a slice that shows this memory at its start.
/// Returns None for other commands, and for a flag of another command than vLLM's whose value is not
/// a fraction.
pub(super) fn estimate(
    command: &[OsString],
    shown: &MemoryView,
    weights: Option<Bytes>,
) -> Option<Estimate> {
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
    if is_vllm(&words) {
        match set_cache(&words) {
            Some(Ok(cache)) => return Some(with_cache(cache, shown, weights)),
            Some(Err(why)) => return Some(unaccepted(&why, shown, weights)),
            None => {}
        }
    }
    let (engine, fraction, sizing) = match flagged(&words) {
        Some((engine, Ok(fraction))) => (engine, fraction, Sizing::Flag(fraction)),
        Some((Engine::Vllm, Err(why))) if is_vllm(&words) => {
            return Some(unaccepted(&why, shown, weights));
        }
        _ if is_vllm(&words) => (Engine::Vllm, VLLM_DEFAULT, Sizing::Default(VLLM_DEFAULT)),
        _ => return None,
    };
    let whole = match engine {
        Engine::Vllm => shown.total,
        Engine::Sglang => shown.free,
    };
    let taken = fraction.of(whole);
    let cache = weights.map(|weights| taken.minus(weights));
    let fault = match weights {
        _ if taken > shown.free => Some(format!(
            "{} does not start: {fraction} of {} {whole} is {}, and the slice has {}",
            engine.name(),
            noun(engine),
            taken.beside(shown.free),
            shown.free.beside(taken),
        )),
        Some(weights) if weights >= taken => Some(format!(
            "{} does not start: {fraction} of {} {whole} is {}, and the weights take {}",
            engine.name(),
            noun(engine),
            taken.beside(weights),
            weights.beside(taken),
        )),
        _ => None,
    };
    Some(Estimate {
        engine,
        sizing,
        whole,
        taken,
        weights,
        cache,
        spare: shown.free.minus(taken),
        fault,
    })
}

fn noun(engine: Engine) -> &'static str {
    match engine {
        Engine::Vllm => "TOTAL",
        Engine::Sglang => "FREE",
    }
}

/// Estimates vLLM with a cache of a given size.
fn with_cache(cache: Bytes, shown: &MemoryView, weights: Option<Bytes>) -> Estimate {
    let taken = cache.plus(weights.unwrap_or(Bytes::ZERO));
    let fault = (taken > shown.free).then(|| {
        let with = match weights {
            Some(weights) => format!(", with weights of {weights} it is {taken}"),
            None => String::new(),
        };
        format!(
            "vLLM does not start: {KV_CACHE} is {cache}{with}, and the slice has {}",
            shown.free.beside(taken)
        )
    });
    Estimate {
        engine: Engine::Vllm,
        sizing: Sizing::Cache(cache),
        whole: shown.total,
        taken,
        weights,
        cache: Some(cache),
        spare: shown.free.minus(taken),
        fault,
    }
}

/// Returns the estimate of a vLLM with a flag that it does not accept.
fn unaccepted(why: &str, shown: &MemoryView, weights: Option<Bytes>) -> Estimate {
    Estimate {
        engine: Engine::Vllm,
        sizing: Sizing::Invalid,
        whole: shown.total,
        taken: Bytes::ZERO,
        weights,
        cache: None,
        spare: shown.free,
        fault: Some(format!("vLLM does not start: {why}")),
    }
}

/// The flags of a command, each with the value after it, if there is one.
fn flags<'a>(words: &'a [&str]) -> impl Iterator<Item = (String, Option<&'a str>)> {
    words.iter().enumerate().map(|(place, word)| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*word, words.get(place.saturating_add(1)).copied()),
        };
        // vLLM takes underscores too.
        (name.replace('_', "-"), value)
    })
}

/// Returns the engine whose flag the command has, and the fraction, or why the engine does not
/// accept it. Of two flags the last counts.
fn flagged(words: &[&str]) -> Option<(Engine, Result<Fraction, String>)> {
    let of_engines = flags(words).filter_map(|(name, value)| {
        let mut engines = [Engine::Vllm, Engine::Sglang].into_iter();
        let engine = engines.find(|engine| engine.flag() == name)?;
        Some((engine, value))
    });
    let (engine, value) = of_engines.last()?;
    let flag = engine.flag();
    let fraction = match value {
        None => Err(format!("{flag} has no value")),
        Some(value) => Fraction::parse(value)
            .filter(|fraction| engine == Engine::Sglang || fraction.0 > 0)
            .ok_or_else(|| {
                let value = printable(value);
                format!("{flag} {value} is not a number above 0 and at most 1")
            }),
    };
    Some((engine, fraction))
}

/// vLLM's flag for a cache of a given size.
const KV_CACHE: &str = "--kv-cache-memory-bytes";

/// Returns the size of the cache that vLLM's flag sets, or why vLLM does not accept it.
fn set_cache(words: &[&str]) -> Option<Result<Bytes, String>> {
    let (_, value) = flags(words).filter(|(name, _)| name == KV_CACHE).last()?;
    let Some(value) = value else {
        return Some(Err(format!("{KV_CACHE} has no value")));
    };
    let size = count(value).map(Bytes::new);
    Some(size.ok_or_else(|| format!("{KV_CACHE} {} is not a size", printable(value))))
}

/// Parses a number as vLLM does: `3k` is 3,000 and `3K` is 3,072. Only the decimal units take
/// fractions.
fn count(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let power = match unit.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => return text.parse().ok(),
    };
    let number = text.strip_suffix(unit)?;
    if unit.is_ascii_uppercase() {
        return number
            .parse::<u64>()
            .ok()?
            .checked_mul(1024_u64.checked_pow(power)?);
    }
    let (whole, places) = number.split_once('.').unwrap_or((number, "0"));
    let size = 1000_u64.checked_pow(power)?;
    let scale = 10_u64.checked_pow(u32::try_from(places.len()).ok()?)?;
    let part = places
        .parse::<u64>()
        .ok()?
        .checked_mul(size)?
        .checked_div(scale)?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(size)?
        .checked_add(part)
}

/// Whether a command starts vLLM's server: `vllm serve`, or `python3 -m vllm.entrypoints...`.
fn is_vllm(words: &[&str]) -> bool {
    let name = words
        .first()
        .and_then(|program| Path::new(program).file_name());
    let serves = name == Some("vllm".as_ref()) && words.get(1) == Some(&"serve");
    let mut pairs = words.windows(2);
    serves
        || pairs
            .any(|pair| matches!(pair, ["-m", module] if module.starts_with("vllm.entrypoints")))
}

impl fmt::Display for Estimate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate {
            engine,
            sizing,
            whole,
            taken,
            spare,
            ..
        } = self;
        if let Some(fault) = &self.fault {
            return out.write_str(fault);
        }
        let (name, noun) = (engine.name(), noun(*engine));
        let (fraction, default) = match sizing {
            Sizing::Flag(fraction) => (fraction, ""),
            Sizing::Default(fraction) => (fraction, " (its default)"),
            Sizing::Cache(cache) => {
                write!(
                    out,
                    "the cache of {name} is {cache}: {KV_CACHE} replaces the fraction"
                )?;
                if let Some(weights) = self.weights {
                    write!(out, "\n  cache and weights of {weights}: {taken}")?;
                }
                return write!(out, "\n  all other allocations: at most {spare}");
            }
            Sizing::Invalid => return Ok(()),
        };
        write!(
            out,
            "{name} reserves {taken}, which is {fraction}{default} of {noun} {whole}"
        )?;
        match (self.weights, self.cache) {
            (Some(weights), Some(cache)) => {
                write!(out, "\n  cache: at most {cache}, with weights of {weights}")?;
            }
            _ => write!(out, "\n  weights and cache together: at most {taken}")?,
        }
        match engine {
            Engine::Vllm => write!(
                out,
                "\n  context and libraries: at most {spare}, or {name} does not start"
            ),
            Engine::Sglang => write!(out, "\n  activations and CUDA graphs: {spare}"),
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
