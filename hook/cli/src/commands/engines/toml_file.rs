//! TOML edits that keep comments, order and spaces.
//! Touches: its arguments.

use anyhow::{Context, bail};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// Parses a file; a missing file counts as empty.
///
/// # Errors
/// When the file is not TOML; the message names the line.
pub(super) fn parse(text: Option<&str>) -> anyhow::Result<DocumentMut> {
    text.unwrap_or_default().parse().context("not TOML")
}

/// Returns the text of a changed document, with the line ends of its old text.
pub(super) fn text(document: &DocumentMut, old: Option<&str>) -> String {
    let text = document.to_string();
    let ends = |text: &str| (text.matches("\r\n").count(), text.matches('\n').count());
    match old.map(ends) {
        Some((both, all)) if all > 0 && both == all => {
            text.replace("\r\n", "\n").replace('\n', "\r\n")
        }
        _ => text,
    }
}

/// Returns the table at `path`, creating it if it does not exist. A table that contains only tables
/// gets no header.
///
/// # Errors
/// When an item that is not a table has one of the names.
pub(super) fn table<'a>(
    document: &'a mut DocumentMut,
    path: &[&str],
) -> anyhow::Result<&'a mut dyn TableLike> {
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for name in path {
        let entry = at.entry(name).or_insert_with(|| {
            let mut made = Table::new();
            made.set_implicit(true);
            Item::Table(made)
        });
        let Some(table) = entry.as_table_like_mut() else {
            bail!("{} is not a table", path.join("."));
        };
        at = table;
    }
    Ok(at)
}

/// Finds the item at `path`.
pub(super) fn find<'a>(document: &'a DocumentMut, path: &[&str]) -> Option<&'a Item> {
    path.iter()
        .try_fold(document.as_item(), |item, name| item.get(name))
}

/// Returns the strings of a list.
pub(super) fn strings(item: &Item) -> Option<Vec<String>> {
    let list = item.as_array()?.iter();
    list.map(|it| Some(it.as_str()?.to_owned())).collect()
}

/// Builds a list of strings.
pub(super) fn list<'a>(strings: impl IntoIterator<Item = &'a str>) -> Item {
    Item::Value(Value::Array(strings.into_iter().collect::<Array>()))
}

/// Removes the header of a table in which only tables are left.
pub(super) fn drop_empty_header(document: &mut DocumentMut, path: &[&str]) {
    let root = Some(document.as_item_mut());
    let item = path.iter().fold(root, |item, name| item?.get_mut(name));
    if let Some(table) = item.and_then(Item::as_table_mut) {
        table.set_implicit(true);
    }
}

/// Sets a key, keeping the position and comments of the old entry.
pub(super) fn put(table: &mut dyn TableLike, key: &str, item: Item) {
    match (table.get_mut(key).and_then(Item::as_value_mut), item) {
        (Some(old), Item::Value(mut new)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        (_, item) => {
            table.insert(key, item);
        }
    }
}
