//! Reasons why a limit was not changed.
//! Touches: nothing.

use super::driver::DriverError;
use crate::driver::keeper::NotLoadedError;
use crate::runs::resizing::SizeError;
use gpuslice_config::words::units::Bytes;

/// Reasons why a limit was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    #[error("{0} has less: give at most {most}MiB", most = .1.get() >> 20)]
    LargerThanCard(String, Bytes),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("the slice holds {held} on {shown}, more than {wanted}:{holders}{hint}")]
    Held {
        shown: String,
        held: Bytes,
        wanted: Bytes,
        holders: String,
        hint: String,
    },
    #[error("the limit was not changed: {0}")]
    Record(SizeError),
    /// Larger limits are in force already when the smaller ones are recorded.
    #[error("the limit of {larger} was changed, and that of {smaller} was not: {error}")]
    RecordSmaller {
        larger: String,
        smaller: String,
        error: SizeError,
    },
    #[error("{0:#}")]
    Ledger(anyhow::Error),
    #[error("the limit was not changed: {0}")]
    NotLoaded(#[from] NotLoadedError),
    #[error("the limit was not changed, because the driver refused the new one: {0:#}")]
    Driver(anyhow::Error),
    #[error(
        "the limit was not changed, because the driver refused a new one: {0:#}\nit may have raised \
         others before, so the larger sizes stay promised: resize the slice again, to the former size"
    )]
    SomeRaised(anyhow::Error),
    #[error(
        "the limit was not changed: {0}\nthe driver may still lower its own limit, and then refuses \
         memory that the slice shows as free: resize the slice again once the driver answers"
    )]
    LowersSilently(DriverError),
    #[error(
        "the limit was not changed: {0}\nthe driver may still raise its own limit, so the larger size \
         stays promised: resize the slice again once the driver answers, to this size or the former one"
    )]
    RaisesSilently(DriverError),
    #[error(transparent)]
    NotRestored(#[from] NotRestoredError),
    #[error("{0}\n{1}")]
    AndNotRestored(Box<ResizeError>, NotRestoredError),
}

/// The driver holds a smaller limit than the slice.
#[derive(Debug, thiserror::Error)]
#[error(
    "the driver did not restore its own limit of {shown}{cause}, and may refuse memory that the slice \
     shows as free: resize the slice again once the driver answers, to this size or the former one"
)]
pub(super) struct NotRestoredError {
    shown: String,
    cause: String,
}

impl NotRestoredError {
    /// The error for these GPUs.
    pub(super) fn of(shown: String, error: &DriverError) -> NotRestoredError {
        let cause = match error {
            DriverError::Refused(error) => format!(" ({error:#})"),
            DriverError::Silent(_) => String::new(),
        };
        NotRestoredError { shown, cause }
    }
}

impl ResizeError {
    pub(super) fn of_driver(
        error: DriverError,
        silent: fn(DriverError) -> ResizeError,
    ) -> ResizeError {
        match error {
            DriverError::Refused(error) => ResizeError::Driver(error),
            DriverError::Silent(_) => silent(error),
        }
    }

    /// The error of a change after which the driver's limits were restored, or not.
    pub(super) fn after(self, restored: Result<(), NotRestoredError>) -> ResizeError {
        match (self, restored) {
            // Its text says so already.
            (error @ ResizeError::LowersSilently(_), _) | (error, Ok(())) => error,
            (error, Err(kept)) => ResizeError::AndNotRestored(Box::new(error), kept),
        }
    }

    /// Whether the size is impossible at this moment, and not gpuslice at fault.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        matches!(
            self,
            ResizeError::LargerThanCard(..)
                | ResizeError::Held { .. }
                | ResizeError::Size(SizeError::NoRoom(_))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_fails_last_does_not_hide_the_limits_in_force() {
        let error = ResizeError::RecordSmaller {
            larger: "GPU 1 (H200)".to_owned(),
            smaller: "GPU 0 (H200)".to_owned(),
            error: SizeError::Unusable(anyhow::anyhow!("cannot write /run/x")),
        };
        let text = "the limit of GPU 1 (H200) was changed, and that of GPU 0 (H200) was not: cannot write \
                    /run/x";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_limit_that_the_driver_keeps_is_named_with_the_reason() {
        let refused = DriverError::Refused(anyhow::anyhow!("no such cgroup"));
        let kept = NotRestoredError::of("GPU 0".to_owned(), &refused);
        let error = ResizeError::Driver(anyhow::anyhow!("not supported")).after(Err(kept));
        let text = "the limit was not changed, because the driver refused the new one: not supported\n\
                    the driver did not restore its own limit of GPU 0 (no such cgroup), and may refuse \
                    memory that the slice shows as free: resize the slice again once the driver answers, \
                    to this size or the former one";
        assert_eq!(error.to_string(), text);
        assert!(!error.is_for_want_of_room());
    }
}
