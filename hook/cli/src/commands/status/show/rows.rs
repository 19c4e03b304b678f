//! The line of each slice: name, used and limit, percent, bar, refusals, fence, user, age, command.
//! Touches: its arguments; names of users.

use super::cells::{self, Unit, age, bar, cut, left, percent, right, width};
use super::groups::{Group, Share};
use super::screen::{Ink, Screen};
use crate::base::text;
use crate::commands::status::model::{Fence, RefusalsShown};
use crate::commands::status::table;
use std::path::Path;

/// A layout: the first that fits is used. It fits if the command has a few columns left.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bar: usize,
    /// Whether refusals are shown with their worst shortfall.
    shortfall: bool,
    fence: bool,
    name: usize,
    user: usize,
    age: bool,
    refused: bool,
}

const WIDEST: Layout = Layout {
    bar: 10,
    shortfall: true,
    fence: true,
    name: usize::MAX,
    user: usize::MAX,
    age: true,
    refused: true,
};

const LAYOUTS: [Layout; 12] = {
    let name = Layout { name: 32, ..WIDEST };
    let short_name = Layout { name: 24, ..name };
    let small_bar = Layout {
        bar: 6,
        ..short_name
    };
    let no_shortfall = Layout {
        shortfall: false,
        ..small_bar
    };
    let shorter_name = Layout {
        name: 16,
        ..no_shortfall
    };
    let no_fence = Layout {
        fence: false,
        ..shorter_name
    };
    let no_bar = Layout { bar: 0, ..no_fence };
    let user = Layout { user: 8, ..no_bar };
    let shortest_name = Layout { name: 12, ..user };
    let no_age = Layout {
        age: false,
        ..shortest_name
    };
    let last = Layout {
        user: 0,
        refused: false,
        ..no_age
    };
    [
        WIDEST,
        name,
        short_name,
        small_bar,
        no_shortfall,
        shorter_name,
        no_fence,
        no_bar,
        user,
        shortest_name,
        no_age,
        last,
    ]
};

/// The minimum width of the command column, unless the command is shorter.
const COMMAND: usize = 16;

/// The columns, in their order.
const COLUMNS: usize = 9;
const NAME: usize = 0;
const AMOUNTS: usize = 1;
const PERCENT: usize = 2;
const BAR: usize = 3;
const REFUSED: usize = 4;
const FENCE: usize = 5;
const USER: usize = 6;
const AGE: usize = 7;
const TAIL: usize = 8;

const HEAD: [&str; COLUMNS] = [
    "NAME",
    "USED / LIMIT",
    "",
    "",
    "REFUSED",
    "FENCE",
    "USER",
    "AGE",
    "COMMAND",
];

/// The used memory and the limit, before they are aligned.
#[derive(Clone, Default)]
struct Amounts {
    used: String,
    limit: String,
}

/// The lines of all slices, aligned with each other.
pub(super) struct Rows {
    layout: Layout,
    /// The columns of the used memory and of the limit.
    amounts: [usize; 2],
    widths: [usize; COLUMNS],
}

impl Rows {
    pub(super) fn of(groups: &[Group<'_>], screen: &Screen) -> Rows {
        let shares: Vec<&Share<'_>> = groups.iter().flat_map(|group| &group.shares).collect();
        let mut amounts = [0; 2];
        for share in &shares {
            let Amounts { used, limit } = Amounts::of(share);
            for (known, cell) in amounts.iter_mut().zip([used, limit]) {
                *known = width(&cell).max(*known);
            }
        }
        let rows = |layout: Layout| {
            let mut widths = [0; COLUMNS];
            let mut rows = Rows {
                layout,
                amounts,
                widths,
            };
            let all = shares.iter().map(|share| rows.cells(share, screen));
            for cells in all.chain([HEAD.map(str::to_owned)]) {
                for (known, cell) in widths.iter_mut().zip(&cells) {
                    *known = width(cell).max(*known);
                }
            }
            layout.hide(&mut widths);
            rows.widths = widths;
            rows
        };
        let fits = |rows: &Rows| {
            let command = rows.widths.get(TAIL).copied().unwrap_or_default();
            let least = rows.indented().saturating_add(command.min(COMMAND));
            screen.width.is_none_or(|most| least <= most)
        };
        let last = LAYOUTS.last().copied().unwrap_or(WIDEST);
        let mut all = LAYOUTS.into_iter().map(rows);
        all.find(fits).unwrap_or_else(|| rows(last))
    }

    /// Returns the columns before the command.
    fn indented(&self) -> usize {
        let before = self.widths.iter().take(TAIL).filter(|width| **width > 0);
        before.fold(INDENT.len(), |sum, width| {
            sum.saturating_add(*width).saturating_add(2)
        })
    }

    pub(super) fn head(&self, screen: &Screen) -> String {
        let line = self.joined(HEAD.map(str::to_owned), |_, cell| cell, screen);
        screen.paint(Ink::Dim, &line)
    }

    pub(super) fn line(&self, share: &Share<'_>, screen: &Screen) -> String {
        let cells = self.cells(share, screen);
        let ink = share.ink();
        let paint = |column: usize, cell: String| match column {
            BAR | PERCENT => screen.paint(ink, &cell),
            REFUSED if share.is_refused() => screen.paint(Ink::Yellow, &cell),
            NAME => screen.paint(Ink::Bold, &cell),
            _ => cell,
        };
        self.joined(cells, paint, screen)
    }

    /// Joins cells, each as wide as its column. The command has the rest of the line.
    fn joined(
        &self,
        cells: [String; COLUMNS],
        paint: impl Fn(usize, String) -> String,
        screen: &Screen,
    ) -> String {
        let rest = screen.width.unwrap_or(usize::MAX);
        let rest = rest.saturating_sub(self.indented());
        let is_narrow = screen.width.is_some_and(|most| self.indented() > most);
        let mut parts = Vec::new();
        for (column, (cell, columns)) in cells.into_iter().zip(self.widths).enumerate() {
            let padded = match column {
                _ if columns == 0 => continue,
                TAIL => cut(screen, &cell, rest),
                AMOUNTS | PERCENT => right(&cell, columns),
                _ => left(&cell, columns),
            };
            parts.push(match is_narrow {
                true => padded,
                false => paint(column, padded),
            });
        }
        let line = format!("{INDENT}{}", parts.join("  "));
        match screen.width {
            Some(most) if is_narrow => cut(screen, line.trim_end(), most),
            _ => line.trim_end().to_owned(),
        }
    }

    fn cells(&self, share: &Share<'_>, screen: &Screen) -> [String; COLUMNS] {
        let layout = self.layout;
        let slice = share.slice;
        let known = share.device.and_then(|device| {
            let limit = device.limit.filter(|_| slice.no_slice.is_none())?;
            Some((device.used_or_reported()?, limit))
        });
        let user = slice.user.map(|user| text::printable(&user.name()));
        let user = cut(screen, &user.unwrap_or_else(|| "-".to_owned()), layout.user);
        let age = slice.age.map_or("-".to_owned(), age);
        let bar = known.map_or(String::new(), |(used, limit)| {
            bar(screen, used, limit, layout.bar)
        });
        [
            cut(screen, &share.name, layout.name),
            Amounts::of(share).aligned(self.amounts),
            known.map_or(String::new(), |(used, limit)| percent(used, limit)),
            bar,
            share.refusals(layout.shortfall),
            slice.fence.name().to_owned(),
            user,
            age,
            share.command(),
        ]
    }
}

const INDENT: &str = "  ";

impl Layout {
    /// Sets the columns that it leaves out to no width.
    fn hide(self, widths: &mut [usize; COLUMNS]) {
        let hidden = [
            (BAR, self.bar == 0),
            (FENCE, !self.fence),
            (USER, self.user == 0),
            (AGE, !self.age),
            (REFUSED, !self.refused),
        ];
        for (column, _) in hidden.into_iter().filter(|(_, is_hidden)| *is_hidden) {
            if let Some(width) = widths.get_mut(column) {
                *width = 0;
            }
        }
    }
}

impl Amounts {
    fn of(share: &Share<'_>) -> Amounts {
        let Some(device) = share.device else {
            return Amounts {
                used: "?".to_owned(),
                limit: String::new(),
            };
        };
        let used = device.used_or_reported();
        let unit = Unit::of(device.limit.or(used).unwrap_or_default());
        let used = match used {
            _ if share.slice.no_slice.is_some() => "-".to_owned(),
            Some(used) => unit.number(used),
            None => "?".to_owned(),
        };
        match device.limit {
            Some(limit) => Amounts {
                used,
                limit: format!("{} {}", unit.number(limit), unit.name()),
            },
            None => Amounts {
                used,
                limit: unit.name().to_owned(),
            },
        }
    }

    fn aligned(&self, [used, limit]: [usize; 2]) -> String {
        let is_limit = self.limit.contains(' ');
        let between = if is_limit { " / " } else { "   " };
        format!(
            "{}{between}{}",
            right(&self.used, used),
            right(&self.limit, limit)
        )
    }
}

impl Share<'_> {
    /// Returns the refused requests, if there are any. Where nothing is refused, the ledger counts
    /// requests over the limit instead.
    fn refused(&self) -> Option<RefusalsShown> {
        let is_counted = self.slice.fence == Fence::Counted;
        let refusals = self.device.filter(|_| !is_counted)?.refusals;
        refusals.filter(|refusals| refusals.count > 0)
    }

    fn is_refused(&self) -> bool {
        self.refused().is_some()
    }

    fn refusals(&self, with_shortfall: bool) -> String {
        match self.refused() {
            None => "-".to_owned(),
            Some(refusals) if with_shortfall => {
                let worst = cells::amount(refusals.worst_short_by);
                format!("{} ({worst})", refusals.count)
            }
            Some(refusals) => refusals.count.to_string(),
        }
    }

    /// Returns the command without the folder of its program.
    fn command(&self) -> String {
        let Some(words) = &self.slice.command else {
            let first = self.slice.containers.first();
            return first.map_or(String::new(), |container| {
                format!("container {}", text::printable(&container.name))
            });
        };
        let mut words = words.iter();
        let program = words.next().map(String::as_str).unwrap_or_default();
        let program = Path::new(program).file_name().unwrap_or_default();
        let program = text::printable(&program.to_string_lossy());
        let words = words.map(|word| text::printable(word));
        let all: Vec<String> = std::iter::once(program).chain(words).collect();
        all.join(" ")
    }

    fn ink(&self) -> Ink {
        let over = self.device.and_then(|device| {
            let used = device.used_or_reported()?;
            Some(used > device.limit?)
        });
        match over {
            Some(true) => Ink::Red,
            _ if self.is_refused() => Ink::Yellow,
            _ => Ink::Green,
        }
    }
}

/// Returns one line for each process that holds memory of the GPU.
pub(super) fn processes(share: &Share<'_>, screen: &Screen) -> Vec<String> {
    let Some(device) = share.device else {
        return Vec::new();
    };
    let lines = device.processes.iter().map(|process| {
        let name = process.name.as_deref().unwrap_or("-");
        [
            process.pid.to_string(),
            cells::amount(process.used),
            text::printable(name),
            table::kinds(&process.by_kind),
        ]
    });
    let lines: Vec<[String; 4]> = lines.collect();
    let aligned = text::aligned(&lines);
    let most = screen.width.unwrap_or(usize::MAX);
    let lines = aligned.lines().map(|line| format!("    {line}"));
    lines.map(|line| cut(screen, &line, most)).collect()
}
