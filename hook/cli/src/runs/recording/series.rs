//! A run's use of memory over time, as a bounded number of points.
//! Touches: its arguments.
//! Law: a point holds from its time to that of the next one. The last point is exact; where earlier
//! ones are merged, the highest use stays.

/// The most amounts that a series holds. With more devices it has fewer points.
const MOST: usize = 2000;

/// The use of every device at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The milliseconds since the run started.
    pub(crate) at: u64,
    /// The use of each device.
    pub(crate) devices: Vec<Level>,
}

/// The use of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// The memory in use, in bytes.
    pub(crate) used: u64,
    /// The number of refused allocations so far.
    pub(crate) refused: u64,
}

/// The points, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Series {
    points: Vec<Point>,
    /// Points that are closer than this many milliseconds are merged.
    spacing: u64,
}

impl Series {
    /// The points.
    #[must_use]
    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Adds a point. Returns false if nothing has changed since the last one.
    pub(crate) fn push(&mut self, point: Point) -> bool {
        if self
            .points
            .last()
            .is_some_and(|last| last.devices == point.devices)
        {
            return false;
        }
        if let [.., before, last] = self.points.as_mut_slice()
            && last.at.saturating_sub(before.at) < self.spacing
        {
            merge(before, last);
            self.points.pop();
        }
        let most = MOST.checked_div(point.devices.len()).unwrap_or(MOST).max(2);
        self.points.push(point);
        if self.points.len() > most {
            self.halve();
        }
        true
    }

    /// Merges every two neighbours, but for the last point.
    fn halve(&mut self) {
        let last = self.points.pop();
        let pairs = self.points.chunks_mut(2).filter_map(|pair| {
            let (one, rest) = pair.split_first_mut()?;
            rest.iter().for_each(|other| merge(one, other));
            Some(one.clone())
        });
        let mut points: Vec<Point> = pairs.collect();
        let (first, end) = (points.first(), last.as_ref());
        let length = first
            .zip(end)
            .map_or(0, |(first, end)| end.at.saturating_sub(first.at));
        let count = u64::try_from(points.len()).unwrap_or(1).max(1);
        self.spacing = length.checked_div(count).unwrap_or(0).max(self.spacing);
        points.extend(last);
        self.points = points;
    }

    /// The line of a point in a history file.
    #[must_use]
    pub(crate) fn line(point: &Point) -> String {
        let levels = point.devices.iter();
        let amounts = levels.map(|level| format!(",{},{}", level.used, level.refused));
        format!("[{}{}]\n", point.at, amounts.collect::<String>())
    }

    /// Reads a point's line; None if it is not the line of a point with so many devices.
    #[must_use]
    pub(crate) fn read(line: &str, devices: usize) -> Option<Point> {
        let amounts: Vec<u64> = serde_json::from_str(line).ok()?;
        let (at, levels) = amounts.split_first()?;
        let (pairs, rest) = levels.as_chunks::<2>();
        let levels = pairs.iter().map(|[used, refused]| Level {
            used: *used,
            refused: *refused,
        });
        (rest.is_empty() && pairs.len() == devices).then(|| Point {
            at: *at,
            devices: levels.collect(),
        })
    }
}

fn merge(one: &mut Point, other: &Point) {
    for (one, other) in one.devices.iter_mut().zip(&other.devices) {
        one.used = one.used.max(other.used);
        one.refused = other.refused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(at: u64, used: u64, refused: u64) -> Point {
        Point {
            at,
            devices: vec![Level { used, refused }],
        }
    }

    #[test]
    fn what_does_not_change_takes_no_room() {
        let mut series = Series::default();
        let added: Vec<bool> = (0..5).map(|at| series.push(point(at, 7, 0))).collect();
        assert_eq!(added, [true, false, false, false, false]);
        assert!(series.push(point(9, 7, 1)));
        assert_eq!(series.points(), [point(0, 7, 0), point(9, 7, 1)]);
        let two = Point {
            at: 1200,
            devices: vec![
                Level {
                    used: 5,
                    refused: 0,
                },
                Level {
                    used: 6,
                    refused: 2,
                },
            ],
        };
        assert_eq!(Series::line(&two), "[1200,5,0,6,2]\n");
        assert_eq!(Series::read(Series::line(&two).trim(), 2), Some(two));
        for line in ["[1,2]", "[1,2,3,4,5]", "", "{}", "[-1,2,3,4,5]"] {
            assert_eq!(Series::read(line, 1), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_long_run_is_bounded_and_keeps_its_peak_and_its_end(
            changes in prop::collection::vec((1u64..5000, 0u64..100), 1..6000),
        ) {
            let mut series = Series::default();
            let (mut now, mut peak, mut last, mut refused) = (0u64, 0u64, 0u64, 0u64);
            for (after, used) in changes {
                (now, peak, last, refused) = (now.saturating_add(after), peak.max(used), used, refused.saturating_add(used % 2));
                series.push(point(now, used, refused));
            }
            let points = series.points();
            prop_assert!(points.len() <= MOST);
            let highest = points.iter().map(|point| point.devices[0].used).max();
            prop_assert_eq!(highest, Some(peak));
            let end = points.last().unwrap().devices[0];
            prop_assert_eq!((end.used, end.refused), (last, refused));
            prop_assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
            prop_assert!(points.windows(2).all(|pair| pair[0].devices[0].refused <= pair[1].devices[0].refused));
        }
    }
}
