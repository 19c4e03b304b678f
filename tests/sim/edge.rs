// Wrappers of C's pointers, shared by the two libraries: out-pointers that refuse NULL, and C
// strings.
// Touches: memory to which the caller's pointers point. The including file defines the code
// NULL_POINTER.

/// A pointer through which the caller wants a value written.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the value, or returns NULL_POINTER for a NULL pointer.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(NULL_POINTER);
        }
        // SAFETY: the C contract of every out-parameter: not null, then writable for one T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value, where the vendor lets the caller pass NULL.
    #[allow(dead_code, reason = "only one of the two libraries has such parameters")]
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as in `set`.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// A pointer to the n-th element of an array that the caller passed.
    pub(crate) fn at(self, n: usize) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The same pointer with another type: attributes that come as `void *`.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Whether the pointer is NULL.
    #[allow(dead_code, reason = "only one of the two libraries has such parameters")]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A place whose address came inside a struct.
    #[allow(dead_code, reason = "only one of the two libraries has such structs")]
    pub(crate) fn from_address(address: usize) -> Self {
        Self(address as *mut T)
    }

    /// The present value.
    #[allow(dead_code, reason = "only one of the two libraries reads what it will write")]
    pub(crate) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// A pointer through which the caller wants a value read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

#[allow(dead_code, reason = "one of the two libraries needs less of it")]
impl<T: Copy> In<T> {
    /// Reads the value, or returns NULL_POINTER for a NULL pointer.
    pub(crate) fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(NULL_POINTER);
        }
        // SAFETY: the C contract of every in-parameter: not null, then readable for one T.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// A pointer to the n-th element of an array that the caller passed.
    pub(crate) fn at(self, n: usize) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The address of the value, for functions that also write to it.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// The same pointer with another type.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

/// A C string the caller passed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(self) -> Answer<&'static str> {
        if self.0.is_null() {
            return Err(NULL_POINTER);
        }
        // SAFETY: the C contract of a string parameter; it is used only during the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| NULL_POINTER)
    }
}

/// Writes a string of at most `len` bytes, including its final NUL.
pub(crate) fn set_text(to: Out<u8>, len: i32, text: &str) -> Answer {
    let len = usize::try_from(len).map_err(|_| NULL_POINTER)?;
    if len == 0 {
        return Err(NULL_POINTER);
    }
    let kept = text.len().min(len - 1);
    for (i, byte) in text.bytes().take(kept).enumerate() {
        to.at(i).set(byte)?;
    }
    to.at(kept).set(0)
}
