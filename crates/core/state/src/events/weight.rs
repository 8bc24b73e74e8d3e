//! The memory that events hold: the rows, and the values that rows share, each value counted once.
//!
//! A row's size is the sum of its fields. A text counts with its header, a number counts eight bytes, and an absent
//! field has a flat size. Ids and short texts that rows share count with each row, so the true size is at most the
//! counted size.

use super::{Event, EventRow};
use caravan_types::alloc::Allocation;
use caravan_types::plugin::{Plugin, Reports};
use serde::de::value::Error;
use serde::ser::{self, Serialize};
use std::fmt::Display;
use std::mem::size_of;
use std::sync::Arc;

/// The bytes of a number.
const NUMBER: usize = 8;
/// The bytes of a text, a list or a map without its content: pointer, length, capacity, and the allocator's header.
const HEADER: usize = 32;
/// The bytes of a field without a value.
const ABSENT: usize = 24;
/// The bytes of an allocation that several owners share: its two counts and the allocator's header.
const SHARED: usize = 32;
/// The bytes of a report of a plugin, and of the path to it, which is copied. A path has up to four steps of sixteen
/// entries.
const WRITTEN_REPORT: usize = 4 << 10;

/// The values that kept events hold.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// The number of holders and the size of each value, by its address. A held value keeps its address. No user
    /// chooses addresses, so a fast hash is safe.
    held: foldhash::HashMap<usize, (u32, usize)>,
    total: usize,
}

impl Weights {
    /// Returns the bytes of all held values.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Adds the events of a command.
    pub(super) fn add(&mut self, events: &[Event]) {
        self.total += frame(events);
        for event in events {
            parts(&event.row, &mut |address, size| {
                let (holders, _) = self.held.entry(address).or_insert_with(|| {
                    let bytes = size();
                    self.total += bytes;
                    (0, bytes)
                });
                *holders += 1;
            });
        }
    }

    /// Removes the events of a command that were added before.
    pub(super) fn remove(&mut self, events: &[Event]) {
        self.total = self.total.saturating_sub(frame(events));
        for event in events {
            parts(&event.row, &mut |address, _| {
                if let Some((holders, bytes)) = self.held.get_mut(&address) {
                    *holders -= 1;
                    if *holders == 0 {
                        self.total = self.total.saturating_sub(*bytes);
                        self.held.remove(&address);
                    }
                }
            });
        }
    }
}

/// Returns the bytes of a batch without the values of its events, but with the entries of [`Weights`].
fn frame(events: &[Event]) -> usize {
    SHARED + HEADER + events.len() * (size_of::<Event>() + size_of::<(usize, (u32, usize))>())
}

/// Calls a function for each shared value of a row, with the value's address and its size without other shared
/// values.
fn parts(row: &EventRow, part: &mut dyn FnMut(usize, &dyn Fn() -> usize)) {
    match row {
        EventRow::Job { row, .. } => whole(row, part),
        EventRow::Evaluation(row) => whole(row, part),
        EventRow::Allocation(row) => allocation(row, part),
        EventRow::Deployment(row) => whole(row, part),
        EventRow::Node(row) | EventRow::NodeReport { row, .. } => whole(row, part),
        EventRow::Service(row) => whole(row, part),
        EventRow::HostVolume(row) => whole(row, part),
        EventRow::CsiVolume { row, used } => {
            whole(row, part);
            part(address(used), &|| SHARED + HEADER + used.claims.len() * 2 * NUMBER);
            for (claim, alloc) in &used.claims {
                whole(claim, part);
                alloc.iter().for_each(|alloc| allocation(alloc, part));
            }
            used.plugin.iter().for_each(|plugin| part(address(plugin), &|| plugin_size(plugin)));
        }
        EventRow::CsiPlugin { row, written } => {
            part(address(row), &|| plugin_size(row) + written * WRITTEN_REPORT);
        }
        EventRow::Variable { row, .. } => whole(row, part),
        EventRow::Namespace { row, .. } => whole(row, part),
        EventRow::NodePool(row) => whole(row, part),
        EventRow::AclPolicy(row) => whole(row, part),
        EventRow::AclToken(row) => whole(row, part),
        EventRow::AclRole(row) => whole(row, part),
        EventRow::AclAuthMethod(row) => whole(row, part),
        EventRow::AclBindingRule(row) => whole(row, part),
    }
}

fn address<T>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).addr()
}

fn whole<T: Serialize>(row: &Arc<T>, part: &mut dyn FnMut(usize, &dyn Fn() -> usize)) {
    part(address(row), &|| SHARED + size(&**row));
}

/// Returns the bytes of a plugin's row without the reports.
fn plugin_size(row: &Plugin) -> usize {
    let row = Plugin { controllers: Reports::new(), nodes: Reports::new(), ..row.clone() };
    SHARED + size(&row)
}

fn allocation(row: &Arc<Allocation>, part: &mut dyn FnMut(usize, &dyn Fn() -> usize)) {
    whole(row, part);
    row.job.iter().for_each(|job| whole(job, part));
    row.allocated_resources.iter().for_each(|resources| whole(resources, part));
    row.reschedule_tracker.iter().for_each(|tracker| whole(tracker, part));
    row.network_status.iter().for_each(|status| whole(status, part));
    if let Some(metrics) = &row.metrics {
        part(address(metrics), &|| SHARED + size(&metrics.score_meta_data) + 4 * NUMBER);
        whole(&metrics.counts, part);
    }
}

/// Returns the bytes of a value.
fn size<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut meter = Meter::default();
    // A value whose serialization fails counts as far as it was serialized.
    let _ = value.serialize(&mut meter);
    meter.bytes
}

/// A serializer that adds up the bytes of a value instead of encoding it.
#[derive(Debug, Default)]
struct Meter {
    bytes: usize,
}

impl Meter {
    fn add(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        Ok(())
    }
}

macro_rules! numbers {
    ($($name:ident: $kind:ty),* $(,)?) => {
        $(fn $name(self, _: $kind) -> Result<(), Error> {
            self.add(NUMBER)
        })*
    };
}

impl<'m> ser::Serializer for &'m mut Meter {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Fields<'m>;
    type SerializeTuple = Fields<'m>;
    type SerializeTupleStruct = Fields<'m>;
    type SerializeTupleVariant = Fields<'m>;
    type SerializeMap = Fields<'m>;
    type SerializeStruct = Fields<'m>;
    type SerializeStructVariant = Fields<'m>;

    /// Returns `false`: the form of commands and snapshots, in which times are numbers, resembles the memory.
    fn is_human_readable(&self) -> bool {
        false
    }

    numbers! {
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64,
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        self.add(HEADER + text.len())
    }
    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Error> {
        self.add(HEADER + bytes.len())
    }
    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        self.add(HEADER + value.to_string().len())
    }
    fn serialize_none(self) -> Result<(), Error> {
        self.add(ABSENT)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Error> {
        self.add(NUMBER)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        Ok(())
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Error> {
        self.add(NUMBER)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.bytes += NUMBER;
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, HEADER, false))
    }
    fn serialize_tuple(self, _: usize) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, 0, false))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, 0, false))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, NUMBER, false))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, HEADER, false))
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, 0, name == "Allocation"))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields<'m>, Error> {
        Ok(Fields::new(self, NUMBER, false))
    }
}

/// The parts of a value that has several parts.
#[derive(Debug)]
struct Fields<'m> {
    meter: &'m mut Meter,
    /// Whether the value is an allocation, whose shared values are counted separately.
    of_allocation: bool,
}

impl<'m> Fields<'m> {
    fn new(meter: &'m mut Meter, bytes: usize, of_allocation: bool) -> Self {
        meter.bytes += bytes;
        Self { meter, of_allocation }
    }
}

macro_rules! elements {
    ($($kind:ident::$name:ident),* $(,)?) => {
        $(impl ser::$kind for Fields<'_> {
            type Ok = ();
            type Error = Error;
            fn $name<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                value.serialize(&mut *self.meter)
            }
            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

impl ser::SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(&mut *self.meter)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.meter)
    }
    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        const SHARED_FIELDS: [&str; 5] =
            ["Job", "AllocatedResources", "Metrics", "RescheduleTracker", "NetworkStatus"];
        match self.of_allocation && SHARED_FIELDS.contains(&name) {
            true => self.meter.add(NUMBER),
            false => value.serialize(&mut *self.meter),
        }
    }
    fn skip_field(&mut self, _: &'static str) -> Result<(), Error> {
        self.meter.add(ABSENT)
    }
    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeStructVariant for Fields<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.meter)
    }
    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}
