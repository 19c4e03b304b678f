//! Random numbers that depend on nothing but the seed.
//! Touches: nothing.

/// SplitMix64: small, and the same on every machine.
pub struct Rng(u64);

impl Rng {
    /// The numbers of one step of one sequence. They do not depend on the steps before, so a step
    /// can be left out without changing the others.
    pub fn of(seed: u64, step: u64) -> Rng {
        let mut rng = Rng(seed ^ step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        rng.next();
        Rng(rng.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0 => 0,
            end => (self.next() % end as u64) as usize,
        }
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A size of memory. Most fit the card; some are at the edges of what the driver rounds to, and
    /// some are sizes that nothing can hold.
    pub fn size(&mut self) -> u64 {
        const MIB: u64 = 1 << 20;
        match self.below(100) {
            0..3 => 0,
            3..10 => self.pick(&[1, 255, 256, 511, 4095, 4096, 65_536]),
            10..30 => 1 + self.next() % MIB,
            30..45 => self.pick(&[MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 4 * MIB]),
            45..80 => 1 + self.next() % (64 * MIB),
            80..93 => MIB * (1 + self.next() % 600),
            93..96 => MIB * (1024 + self.next() % 8192),
            _ => self.pick(&[
                1 << 40,
                1 << 62,
                u64::MAX,
                u64::MAX - 4095,
                u64::MAX - 2 * MIB,
                u64::from(u32::MAX),
            ]),
        }
    }

    /// A multiple of the driver's granule, or now and then a size that is none.
    pub fn granules(&mut self) -> u64 {
        match self.percent(88) {
            true => (1 + self.next() % 40) << 21,
            false => self.size(),
        }
    }

    /// The number of a device: mostly one that exists.
    pub fn device(&mut self) -> u64 {
        match self.below(100) {
            0..75 => 0,
            75..94 => 1,
            _ => self.pick(&[2, 3, 64, 0x7fff_ffff, 0xffff_ffff, 0xffff_fffe]),
        }
    }

    pub fn bits(&mut self, from: &[u64]) -> u64 {
        match self.percent(92) {
            true => self.pick(from),
            false => self.next() >> self.below(64),
        }
    }
}
