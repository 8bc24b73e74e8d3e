//! The state of one render: its needs and its work.

use crate::limits;
use crate::value::{self, Map, map, text};
use crate::{Fault, Inputs, Need};
use caravan_types::lookup::{Found, Lookup, VariableStub};
use gotmpl::{TemplateError, Value};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The result of a function; the error is a sentence.
pub(crate) type Answer = Result<Value, String>;

/// A render in progress.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) inputs: Inputs,
    pub(crate) strict: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    needs: BTreeSet<Need>,
    missing: BTreeSet<Need>,
    fault: Option<Fault>,
    work: u64,
    random: u64,
    scratch: BTreeMap<Arc<str>, Value>,
    /// Maps that are variables, with the metadata that their items lack.
    variables: Vec<(Map, VariableStub)>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("needs", &self.needs).field("work", &self.work).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(inputs: Inputs, strict: bool) -> Self {
        let state = State { random: inputs.seed, ..State::default() };
        Self { inputs, strict, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends the render and returns its needs, the missing ones, and the fault that no data can fix.
    pub(crate) fn finish(&self) -> (BTreeSet<Need>, BTreeSet<Need>, Option<Fault>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.needs), std::mem::take(&mut state.missing), state.fault.take())
    }

    /// Counts work. Returns an error if the render is stopped or exceeds its limit.
    pub(crate) fn charge(&self, steps: u64) -> Result<(), String> {
        if self.inputs.stop.load(Ordering::Relaxed) {
            return Err(self.fail("it takes too long"));
        }
        let used = {
            let mut state = self.lock();
            state.work = state.work.saturating_add(steps);
            state.work
        };
        if used > limits::WORK {
            return Err(self.fail("it does too much"));
        }
        Ok(())
    }

    /// Records a fault of the whole render, even if needs are missing. Returns the reason.
    pub(crate) fn fail(&self, why: &str) -> String {
        let fault = Fault::Failed(why.to_owned());
        self.lock().fault.get_or_insert(fault);
        why.to_owned()
    }

    /// Measures a value and counts its size as work.
    pub(crate) fn measure(&self, value: &Value) -> Result<(), String> {
        let mut left = limits::VALUE;
        if let Err(why) = value::weigh(value, 0, &mut left) {
            return Err(self.fail(why));
        }
        self.charge(16 + limits::VALUE - left)
    }

    /// Returns the result of a lookup; `None` if the result is unknown or not permitted. The render then waits for
    /// the result.
    pub(crate) fn look_up(&self, lookup: Lookup) -> Option<Found> {
        let found =
            self.inputs.found.get(&lookup).filter(|found| !matches!(found, Found::Denied(_))).cloned();
        self.need(Need::Lookup(lookup), found.is_none());
        found
    }

    /// Returns the content of a file; `None` if the file does not exist. The render then waits for the file.
    pub(crate) fn file(&self, path: &str) -> Option<String> {
        let found = self.inputs.files.get(path).cloned();
        self.need(Need::File(path.to_owned()), found.is_none());
        found
    }

    /// Records a need.
    pub(crate) fn need(&self, need: Need, missing: bool) {
        let mut state = self.lock();
        if missing {
            state.missing.insert(need.clone());
        }
        state.needs.insert(need);
    }

    /// Returns a variable as a value, and records its metadata.
    pub(crate) fn remember(&self, items: Map, stub: VariableStub) -> Value {
        self.lock().variables.push((Arc::clone(&items), stub));
        Value::Map(items)
    }

    fn variable(&self, items: &Map) -> Option<VariableStub> {
        self.lock()
            .variables
            .iter()
            .find(|(known, _)| Arc::ptr_eq(known, items))
            .map(|(_, stub)| stub.clone())
    }

    /// Returns the next random number (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.lock();
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Runs `work` on the template's scratch storage.
    pub(crate) fn scratch<T>(&self, work: impl FnOnce(&mut BTreeMap<Arc<str>, Value>) -> T) -> T {
        work(&mut self.lock().scratch)
    }

    /// Follows field names into a value.
    pub(crate) fn get(&self, args: &[Value]) -> Answer {
        let Some((base, names)) = args.split_first() else { return Ok(Value::Nil) };
        names
            .iter()
            .try_fold(base.clone(), |value, name| self.field(&value, name.as_str().unwrap_or_default()))
    }

    fn field(&self, value: &Value, name: &str) -> Answer {
        match value {
            Value::Map(items) => match items.get(name) {
                Some(found) => Ok(found.clone()),
                None => self.absent(items, name),
            },
            Value::Nil if self.strict => Err(format!("nothing there has an entry for key \"{name}\"")),
            Value::Nil => Ok(Value::Nil),
            // `Value` of an item of a variable is the item itself.
            Value::String(_) if name == "Value" => Ok(value.clone()),
            other => Err(format!("can't evaluate field {name} in type {}", other.type_name())),
        }
    }

    /// Returns the value of a name that is no key: metadata of a variable, or nothing.
    fn absent(&self, items: &Map, name: &str) -> Answer {
        let variable = self.variable(items);
        if let Some(stub) = &variable {
            let pairs = items.iter();
            match name {
                "Items" => return Ok(Value::Map(Arc::clone(items))),
                "Keys" => {
                    return Ok(Value::List(pairs.map(|(key, _)| Value::String(Arc::clone(key))).collect()));
                }
                "Values" => return Ok(Value::List(pairs.map(|(_, value)| value.clone()).collect())),
                "Tuples" => {
                    let pair = |(key, value): (&Arc<str>, &Value)| {
                        map([("K", Value::String(Arc::clone(key))), ("V", value.clone())])
                    };
                    return Ok(Value::List(pairs.map(pair).collect()));
                }
                "Metadata" | "Parent" => return Ok(value::of_stub(stub)),
                _ => {}
            }
        }
        match (self.strict, variable) {
            (true, _) => Err(format!("map has no entry for key \"{name}\"")),
            (false, Some(_)) => Ok(text("")),
            (false, None) => Ok(Value::Nil),
        }
    }
}

/// A writer with a maximum length.
#[derive(Debug)]
pub(crate) struct Bounded {
    text: String,
    most: usize,
    full: bool,
}

impl Bounded {
    pub(crate) fn new(most: usize) -> Self {
        Self { text: String::new(), most, full: false }
    }
    pub(crate) fn full(&self) -> bool {
        self.full
    }
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() > self.most {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Formats an error of the engine without its prefix.
pub(crate) fn plain(error: &TemplateError) -> String {
    match error {
        TemplateError::Exec(why) => why.clone(),
        other => other.to_string(),
    }
}
