//! Estimates the memory that an inference engine takes in a slice, from its flags.
//! Touches: its arguments.
//! Law: only the engines' own arithmetic, and an upper bound. Activations, CUDA graphs, and what
//! else an engine allocates before it sizes its cache, are not known here.
//!
//! vLLM 0.33 (`mem_utils.py`, `gpu_worker.py`): the cache is `ceil(utilisation * TOTAL)`, less all
//! that was allocated since the start and the activations' peak. It refuses to start if FREE is less
//! than that product. SGLang 0.5: the cache is FREE after the weights were loaded, less
//! `(1 - fraction)` of FREE before. `tests/engines` runs both in slices.

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

/// The memory that an engine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) engine: Engine,
    pub(super) fraction: Fraction,
    /// Whether the command has the flag; otherwise the fraction is the engine's default.
    pub(super) is_set: bool,
    /// The amount of which the fraction is taken.
    pub(super) whole: Bytes,
    /// That fraction: the most for weights, cache and the rest.
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
/// Returns None for other commands, and for a flag whose value is not a fraction.
pub(super) fn estimate(
    command: &[OsString],
    shown: &MemoryView,
    weights: Option<Bytes>,
) -> Option<Estimate> {
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
    let (engine, fraction, is_set) = flagged(&words)
        .map(|(engine, fraction)| (engine, fraction, true))
        .or_else(|| is_vllm(&words).then_some((Engine::Vllm, VLLM_DEFAULT, false)))?;
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
        fraction,
        is_set,
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

/// Returns the engine whose flag the command has, and the fraction. Of two flags the last counts.
fn flagged(words: &[&str]) -> Option<(Engine, Fraction)> {
    let mut found = None;
    for (place, word) in words.iter().enumerate() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*word, words.get(place.saturating_add(1)).copied()),
        };
        // vLLM takes underscores too.
        let name = name.replace('_', "-");
        let mut engines = [Engine::Vllm, Engine::Sglang].into_iter();
        if let Some(engine) = engines.find(|engine| engine.flag() == name) {
            found = Some((engine, Fraction::parse(value?)?));
        }
    }
    found
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
            fraction,
            whole,
            taken,
            spare,
            ..
        } = self;
        if let Some(fault) = &self.fault {
            return out.write_str(fault);
        }
        let default = if self.is_set { "" } else { " (its default)" };
        let (name, noun) = (engine.name(), noun(*engine));
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
mod tests {
    use super::*;
    use gpuslice_config::words::units::GIB;

    fn words(command: &str) -> Vec<OsString> {
        command.split(' ').map(OsString::from).collect()
    }

    fn shows(total: u64, free: u64) -> MemoryView {
        MemoryView {
            total: Bytes::gib(total),
            free: Bytes::gib(free),
            used: Bytes::gib(total).minus(Bytes::gib(free)),
        }
    }

    /// Hundredths of a GiB.
    fn hundredths(amount: Bytes) -> u64 {
        amount.get().saturating_mul(100) / GIB
    }

    /// The caches that `tests/engines` measures in a slice of 40 GiB: 20.8 GiB (vLLM) and 17.7 GiB
    /// (SGLang), with weights of 14 GiB, a peak of 2 GiB and a context of 0.9 GiB.
    #[test]
    fn the_bound_holds_for_the_engines_that_were_measured() {
        let weights = Some(Bytes::gib(14));
        let of = |command: &str| estimate(&words(command), &shows(40, 40), weights).unwrap();
        let vllm = of("vllm serve MODEL");
        assert_eq!(hundredths(vllm.taken), 3680);
        // The peak of 2 GiB is what the bound does not know.
        assert_eq!(hundredths(vllm.cache.unwrap()), 2080 + 200);
        assert!(!vllm.is_set && vllm.fault.is_none());
        let sglang = of("python3 -m sglang.launch_server --mem-fraction-static 0.81");
        // 0.81 of the context of 0.9 GiB is what it does not know.
        assert_eq!(hundredths(sglang.cache.unwrap()), 1840);
        assert!(hundredths(sglang.cache.unwrap()) >= 1767);
    }

    #[test]
    fn a_share_of_the_device_that_exceeds_the_slice_does_not_start() {
        let estimate = estimate(&words("vllm serve MODEL"), &shows(121, 40), None).unwrap();
        assert_eq!(
            estimate.to_string(),
            "vLLM does not start: 0.92 of TOTAL 121.00 GiB is 111.32 GiB, and the slice has 40.00 GiB"
        );
    }

    #[test]
    fn weights_that_leave_no_cache_are_a_fault() {
        let command = words("vllm serve MODEL --gpu-memory-utilization=0.5");
        let estimate = estimate(&command, &shows(12, 12), Some(Bytes::gib(6))).unwrap();
        assert_eq!(
            estimate.fault.unwrap(),
            "vLLM does not start: 0.5 of TOTAL 12.00 GiB is 6.00 GiB, and the weights take 6.00 GiB"
        );
    }

    #[test]
    fn flags_are_found_in_every_spelling_and_the_last_one_counts() {
        for (command, fraction) in [
            ("vllm serve M --gpu-memory-utilization 0.9", Some(900_000)),
            ("vllm serve M --gpu_memory_utilization=.5", Some(500_000)),
            ("sh x --gpu-memory-utilization 1", Some(1_000_000)),
            (
                "v --mem-fraction-static 0.1 --mem-fraction-static 0.8123456",
                Some(812_345),
            ),
            ("/opt/bin/vllm serve M", Some(920_000)),
            (
                "python3 -m vllm.entrypoints.openai.api_server",
                Some(920_000),
            ),
            ("vllm bench", None),
            ("llama-server -m vllm", None),
            ("x --gpu-memory-utilization", None),
            ("x --gpu-memory-utilization 92", None),
            ("x --gpu-memory-utilization -1", None),
            ("x --gpu-memory-utilization auto", None),
            ("x --gpu-memory-utilization .", None),
        ] {
            let found = estimate(&words(command), &shows(12, 12), None);
            let found = found.map(|found| found.fraction.0);
            assert_eq!(found, fraction, "{command}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_fraction_is_never_more_than_the_whole(text in "[0-9.]{0,12}", amount: u64) {
            if let Some(fraction) = Fraction::parse(&text) {
                let taken = fraction.of(Bytes::new(amount));
                proptest::prop_assert!(taken.get() <= amount);
                let again = Fraction::parse(&fraction.to_string());
                proptest::prop_assert_eq!(again, Some(fraction));
            }
        }
    }
}
