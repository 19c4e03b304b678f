//! Keeps the numbers of the standard streams free of files that are written to.
//! Touches: descriptors 0 to 2, where they are free.

use super::{Fd, int, syscall};

/// Descriptors at those of the numbers 0 to 2 that were free. Until they are dropped, a file that is
/// opened gets a number above 2: another thread of the program may write messages to a standard error
/// that it has closed. Nothing can be written through a placeholder.
#[derive(Debug, Default)]
pub struct Placeholders([Option<usize>; 3]);

impl Placeholders {
    /// Takes the free numbers.
    #[must_use]
    pub fn of_standard_streams() -> Placeholders {
        let mut taken = Placeholders::default();
        for place in &mut taken.0 {
            match Fd::open_path(c"/") {
                Ok(fd) if fd.number() <= 2 => {
                    *place = Some(fd.number());
                    core::mem::forget(fd);
                }
                _ => break,
            }
        }
        taken
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for number in self.0.iter().flatten() {
            // The program may have opened a stream in its place meanwhile (`dup2`).
            // SAFETY: no pointers.
            let flags = unsafe {
                let wanted = [*number, int(libc::F_GETFL), 0, 0, 0, 0];
                syscall(libc::SYS_fcntl, wanted)
            };
            if flags.is_ok_and(|flags| flags & int(libc::O_PATH) != 0) {
                drop(Fd::numbered(*number));
            }
        }
    }
}
