//! Text for people.
//! Touches: its arguments.

/// A name or a message that others have written, which may not move the cursor.
#[must_use]
pub fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut printable = String::new();
    for letter in text.chars() {
        match letter.is_control() {
            true => printable.extend(letter.escape_debug()),
            false => printable.push(letter),
        }
    }
    printable
}

/// Columns as wide as their widest cell; the last one is as long as it is.
#[must_use]
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        // What follows the last cell would be cut off again.
        let last = N.saturating_sub(1);
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            text.push_str(cell);
            if column != last {
                let blanks = width.saturating_sub(cell.chars().count()).saturating_add(2);
                text.extend(std::iter::repeat_n(' ', blanks));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}
