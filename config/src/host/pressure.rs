//! Parses the machine's memory pressure, `/proc/pressure/memory`.
//! Touches: its arguments; the caller has read the file.

/// The bytes of the file to read: it has two lines.
pub const HEAD: usize = 256;

/// The share of the last ten seconds in which all processes waited for memory, in hundredths of a
/// percent.
///
/// `None` when the line is missing or garbled: a signal that cannot be trusted is not used.
#[must_use]
pub fn full_avg10(text: &[u8]) -> Option<u32> {
    avg10(text, b"full ")
}

/// The share of the last ten seconds in which at least one process waited for memory, in hundredths
/// of a percent.
///
/// `None` when the line is missing or garbled.
#[must_use]
pub fn some_avg10(text: &[u8]) -> Option<u32> {
    avg10(text, b"some ")
}

fn avg10(text: &[u8], who: &[u8]) -> Option<u32> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(who))?;
    let mut fields = line.split(|byte| *byte == b' ');
    hundredths(fields.find_map(|field| field.strip_prefix(b"avg10="))?)
}

/// `12.34`.
fn hundredths(text: &[u8]) -> Option<u32> {
    let point = text.iter().position(|byte| *byte == b'.')?;
    let (whole, rest) = (text.get(..point)?, text.get(point..)?.get(1..)?);
    let [tens, ones] = rest else { return None };
    let digit = |byte: u8| byte.checked_sub(b'0').filter(|digit| *digit <= 9);
    if whole.is_empty() {
        return None;
    }
    let mut number = 0u32;
    for byte in whole.iter().chain([tens, ones]) {
        number = number
            .checked_mul(10)?
            .checked_add(u32::from(digit(*byte)?))?;
    }
    (number <= 10_000).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &[u8] = b"some avg10=1.00 avg60=0.00 avg300=0.00 total=714485\n\
        full avg10=0.05 avg60=0.00 avg300=0.00 total=511950\n";

    #[test]
    fn the_line_of_those_that_all_wait_is_read() {
        assert_eq!(full_avg10(IDLE), Some(5));
        assert_eq!(some_avg10(IDLE), Some(100));
        assert_eq!(full_avg10(b"full avg10=100.00"), Some(10_000));
    }

    #[test]
    fn a_garbled_file_is_no_signal() {
        for text in [
            &b""[..],
            b"some avg10=9.00",
            b"full",
            b"full avg10=",
            b"full avg10=.05",
            b"full avg10=5",
            b"full avg10=5.0",
            b"full avg10=-5.00",
            b"full avg10=100.01",
            b"full avg10=99999999999.00",
            b"full avg60=5.00",
        ] {
            assert_eq!(full_avg10(text), None, "{text:?}");
        }
    }
}
