//! The memory of a traced process: words, and its table of kernel facts (the auxiliary vector).
//! Touches: the memory of that process.

/// The memory of one process.
pub(crate) struct Memory {
    pid: i32,
}

impl Memory {
    pub(crate) fn of(pid: i32) -> Memory {
        Memory { pid }
    }

    /// Reads a word.
    pub(crate) fn read(&self, at: u64) -> Option<u64> {
        let mut word = [0u8; 8];
        let here = libc::iovec {
            iov_base: word.as_mut_ptr().cast(),
            iov_len: 8,
        };
        let there = remote(at);
        // SAFETY: `here` is 8 writable bytes; the kernel checks the other process's address.
        let read =
            unsafe { libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0) };
        (read == 8).then(|| u64::from_ne_bytes(word))
    }

    /// Writes a word, where the process could write one.
    pub(crate) fn write(&self, at: u64, word: u64) {
        let mut bytes = word.to_ne_bytes();
        let here = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: 8,
        };
        let there = remote(at);
        // SAFETY: `here` is 8 readable bytes; the kernel checks the other process's address.
        unsafe { libc::process_vm_writev(self.pid, &raw const here, 1, &raw const there, 1, 0) };
    }

    /// Removes the kernel's shared object of a process that has just executed its program. It then
    /// reads clocks by system calls, which can be traced.
    pub(crate) fn hide_vdso(&self) {
        const AT_NULL: u64 = 0;
        const AT_IGNORE: u64 = 1;
        const AT_SYSINFO_EHDR: u64 = 33;
        let Some(mut at) = self.start_of_stack() else {
            return;
        };
        // The count of arguments, the arguments and the environment, each ended by zero.
        at += 8;
        for _ in 0..2 {
            while self.read(at).is_some_and(|word| word != 0) {
                at += 8;
            }
            at += 8;
        }
        while let Some(kind) = self.read(at).filter(|kind| *kind != AT_NULL) {
            if kind == AT_SYSINFO_EHDR {
                self.write(at, AT_IGNORE);
            }
            at += 16;
        }
    }

    /// The address at which the stack began.
    fn start_of_stack(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(25)?.parse().ok()
    }
}

fn remote(at: u64) -> libc::iovec {
    let at = usize::try_from(at).unwrap_or_default();
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at),
        iov_len: 8,
    }
}
