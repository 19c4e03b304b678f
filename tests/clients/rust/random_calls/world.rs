//! One sequence of calls: the handles that exist, the log, and the way to each function.
//! Touches: the driver's libraries, standard output.

use crate::arguments::{Argument, Place, Shown};
use crate::libraries::Libraries;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// The kinds of things that calls make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Context,
    Stream,
    Event,
    Memory,
    Host,
    Registered,
    Array,
    Mipmap,
    Pool,
    DefaultPool,
    Physical,
    Range,
    Mapped,
    Graph,
    Node,
    Exec,
    Green,
    Descriptor,
    Ipc,
    IpcHandle,
    File,
    Nvml,
    Instance,
    PhysicalDevice,
    Device,
    DeviceMemory,
    ClContext,
    ClMemory,
    Svm,
}

impl Kind {
    /// Whether its handles are addresses, which the system gives out again.
    fn is_address(self) -> bool {
        matches!(
            self,
            Kind::Memory | Kind::Host | Kind::Registered | Kind::Range | Kind::Mapped | Kind::Svm
        )
    }
}

/// A thing that a call has made.
#[derive(Clone)]
pub struct Thing {
    pub value: u64,
    pub name: String,
    /// Its length, where later calls need one.
    pub bytes: u64,
    /// More of it: the 64 bytes of an IPC handle.
    pub more: Vec<u8>,
}

/// A sequence in the making.
pub struct World<'a> {
    pub libraries: &'a Libraries,
    pub rng: Rng,
    live: BTreeMap<Kind, Vec<Thing>>,
    dead: BTreeMap<Kind, Vec<Thing>>,
    count: BTreeMap<Kind, usize>,
    /// The handle that the last successful call has returned.
    pub last: u64,
    line: String,
}

/// A call that is being put together.
pub struct Call {
    pub name: &'static str,
    pub arguments: Vec<Argument>,
}

impl Call {
    pub fn of(name: &'static str) -> Call {
        Call {
            name,
            arguments: Vec::new(),
        }
    }

    pub fn number(mut self, word: u64) -> Call {
        self.arguments.push(Argument::Number(word));
        self
    }

    pub fn thing(mut self, (word, name): (u64, String)) -> Call {
        self.arguments.push(Argument::Named(word, name));
        self
    }

    /// A place for a handle.
    pub fn out(mut self, kind: Kind) -> Call {
        let place = Place::new(8, &[]);
        self.arguments.push(Argument::Out(kind, place));
        self
    }

    /// A place of so many bytes.
    pub fn write(self, shown: Shown, length: usize) -> Call {
        self.write_over(shown, length, &[])
    }

    /// A place of so many bytes, which begins with these.
    pub fn write_over(mut self, shown: Shown, length: usize, given: &[u8]) -> Call {
        let place = Place::new(length, given);
        self.arguments.push(Argument::Write(shown, place));
        self
    }

    /// A structure of these words, which the callee reads.
    pub fn read(mut self, bytes: Vec<u8>, text: String) -> Call {
        self.arguments.push(Argument::Read(bytes, text));
        self
    }
}

/// The bytes of a structure made of 32-bit words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl<'a> World<'a> {
    pub fn new(libraries: &'a Libraries) -> World<'a> {
        World {
            libraries,
            rng: Rng::of(0, 0),
            live: BTreeMap::new(),
            dead: BTreeMap::new(),
            count: BTreeMap::new(),
            last: 0,
            line: String::new(),
        }
    }

    /// Writes a line of the log at once, so that it is there if the next call ends the process.
    pub fn say(&mut self, text: &str) {
        self.line.clear();
        let _ = writeln!(self.line, "{text}");
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(self.line.as_bytes());
        let _ = out.flush();
    }

    /// The living things of a kind.
    pub fn all(&self, kind: Kind) -> Vec<Thing> {
        self.live.get(&kind).cloned().unwrap_or_default()
    }

    /// A living thing of a kind, for calls that need to know more of it.
    pub fn one(&mut self, kind: Kind) -> Option<Thing> {
        let all = self.live.get(&kind)?;
        all.get(self.rng.below(all.len())).cloned()
    }

    /// A handle of a kind: mostly one that lives, else a dead one, null, or none at all.
    ///
    /// Addresses of dead memory are left out: the system may have given them to other memory by
    /// now, and not to the same in two runs. [`World::twice`] frees memory a second time instead.
    pub fn any(&mut self, kind: Kind) -> (u64, String) {
        let chance = self.rng.below(100);
        let (from, state) = match chance {
            90..95 if !kind.is_address() => (self.dead.get(&kind), "dead "),
            0..95 => (self.live.get(&kind), ""),
            95..98 => return (0, String::from("null")),
            _ => return (0x1230, String::from("garbage")),
        };
        let at = self.rng.below(from.map_or(0, Vec::len));
        match from.and_then(|from| from.get(at)) {
            Some(thing) => (thing.value, format!("{state}{}", thing.name)),
            None => (0, String::from("null")),
        }
    }

    /// A handle of one of several kinds.
    pub fn either(&mut self, kinds: &[Kind]) -> (u64, String) {
        let known: Vec<Kind> = kinds
            .iter()
            .copied()
            .filter(|kind| self.live.get(kind).is_some_and(|all| !all.is_empty()))
            .collect();
        match known.is_empty() || self.rng.percent(10) {
            true => {
                let kind = self.rng.pick(kinds);
                self.any(kind)
            }
            false => {
                let kind = self.rng.pick(&known);
                self.any(kind)
            }
        }
    }

    /// A place, or now and then null in its stead.
    pub fn or_null(&mut self, mut call: Call) -> Call {
        if self.rng.percent(3)
            && let Some(last) = call.arguments.last_mut()
        {
            *last = Argument::Named(0, String::from("NULL"));
        }
        call
    }

    /// Remembers a thing, and gives it a name. What lives already keeps its name.
    pub fn made(&mut self, kind: Kind, value: u64, bytes: u64, more: Vec<u8>) -> String {
        let live = self.live.entry(kind).or_default();
        if let Some(known) = live
            .iter()
            .find(|known| known.value == value && kind != Kind::IpcHandle)
        {
            return format!("{} again", known.name);
        }
        let count = self.count.entry(kind).or_default();
        *count += 1;
        let name = format!("{kind:?}{count}");
        live.push(Thing {
            value,
            name: name.clone(),
            bytes,
            more,
        });
        name
    }

    /// The length of a thing that a call has just made.
    pub fn sized(&mut self, kind: Kind, bytes: u64) {
        if let Some(last) = self.live.get_mut(&kind).and_then(|all| all.last_mut()) {
            last.bytes = bytes;
        }
    }

    /// A thing does not exist any more.
    pub fn ended(&mut self, kind: Kind, value: u64) {
        if let Some(live) = self.live.get_mut(&kind)
            && let Some(at) = live.iter().position(|thing| thing.value == value)
        {
            let thing = live.remove(at);
            self.dead.entry(kind).or_default().push(thing);
        }
    }

    /// Makes the same call of a thing again, now and then: a second free, a second end.
    pub fn twice(&mut self, name: &'static str, value: u64, text: &str) {
        if self.rng.percent(10) {
            self.make(Call::of(name).thing((value, format!("ended {text}"))));
        }
    }

    /// A context has ended, and with it the memory that may be in it.
    pub fn context_ended(&mut self) {
        for kind in [Kind::Memory, Kind::Host, Kind::Registered] {
            self.all_ended(kind);
        }
    }

    /// All things of a kind do not exist any more.
    pub fn all_ended(&mut self, kind: Kind) {
        let live = self.live.remove(&kind).unwrap_or_default();
        self.dead.entry(kind).or_default().extend(live);
    }

    /// Makes a call of the driver, by one of the ways to its function. Returns its code.
    pub fn make(&mut self, call: Call) -> i32 {
        let address = self.libraries.find(call.name, &mut self.rng);
        self.make_at(address, call)
    }

    /// Makes a call at an address. Null: the driver has no such function.
    pub fn make_at(&mut self, address: u64, mut call: Call) -> i32 {
        let texts: Vec<String> = call.arguments.iter().map(Argument::text).collect();
        let head = format!("{}({})", call.name, texts.join(", "));
        if address == 0 {
            self.say(&format!("{head} is absent"));
            return -1;
        }
        // Written before the call, because the call may not return.
        print!("{head}");
        let _ = std::io::stdout().flush();
        let mut words = [0u64; 11];
        for (word, argument) in words.iter_mut().zip(&mut call.arguments) {
            *word = argument.word();
        }
        // SAFETY: every intercepted function takes integers and pointers. More arguments than a
        // function has do no harm in C's calling conventions of both architectures.
        let rc = unsafe { crate::libraries::call(address, words) };
        self.finish(rc, &call)
    }

    /// Logs the end of a call, and remembers what it has made.
    pub fn finish(&mut self, rc: i32, call: &Call) -> i32 {
        let mut text = format!(" = {rc}");
        for argument in &call.arguments {
            if let Argument::Out(kind, place) = argument {
                text += &match (place.is_unchanged(), rc, place.word()) {
                    (true, ..) => String::from(" -"),
                    (false, 0, 0) => String::from(" null"),
                    (false, 0, value) => {
                        self.last = value;
                        format!(" {}", self.made(*kind, value, 0, Vec::new()))
                    }
                    (false, _, 0) => String::from(" null, written"),
                    (false, _, _) => String::from(" something, written"),
                };
            }
            text += &argument.written();
        }
        self.say(&text);
        rc
    }
}
