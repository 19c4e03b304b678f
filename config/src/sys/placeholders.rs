//! Keeps the numbers of the standard streams free of files that are written to.
//! Touches: descriptors 0 to 2, where they are free.

use super::{Fd, int, syscall};

/// Descriptors at those of the numbers 0 to 2 that were free. Until they are dropped, a file that is
/// opened gets a number above 2: another thread of the program may write messages to a standard error
/// that it has closed. Nothing can be written through a placeholder.
#[derive(Debug, Default)]
pub struct Placeholders(
    /// A bit for each number.
    u8,
);

impl Placeholders {
    /// Takes the free numbers.
    #[must_use]
    pub fn of_standard_streams() -> Placeholders {
        let mut taken = 0;
        while let Ok(fd) = Fd::open_path(c"/")
            && fd.number() <= 2
        {
            taken |= 1 << fd.number();
            core::mem::forget(fd);
        }
        Placeholders(taken)
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for number in 0..3usize {
            if self.0 & 1 << number == 0 {
                continue;
            }
            // The program may have opened a stream in its place meanwhile (`dup2`).
            // SAFETY: no pointers.
            let flags =
                unsafe { syscall(libc::SYS_fcntl, [number, int(libc::F_GETFL), 0, 0, 0, 0]) };
            if flags.is_ok_and(|flags| flags & int(libc::O_PATH) != 0) {
                drop(Fd::numbered(number));
            }
        }
    }
}
