//! The row of an allocation in a snapshot, with a position in place of the job. A state has hundreds of thousands of
//! allocations, so the encoder does not copy them.

use caravan_types::alloc::Allocation;
use serde::ser::{Impossible, Serialize, SerializeStruct, Serializer};

/// The name of the field that rows omit.
const JOB: &str = "Job";

/// An allocation with the position of its job; the form of [`caravan_types::packed::row::AllocOfJob`].
#[derive(serde::Serialize)]
pub(super) struct AllocRow<'a> {
    alloc: Jobless<'a>,
    job: Option<u32>,
}

impl<'a> AllocRow<'a> {
    /// Returns the row of an allocation. `job` is the position of its job, if it has one.
    pub(super) fn new(alloc: &'a Allocation, job: Option<u32>) -> Self {
        Self { alloc: Jobless(alloc), job }
    }
}

/// An allocation that is written without its job.
struct Jobless<'a>(&'a Allocation);

impl Serialize for Jobless<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.job {
            Some(_) => self.0.serialize(Without(serializer)),
            None => self.0.serialize(serializer),
        }
    }
}

/// A serializer of a struct that omits the field [`JOB`]. It refuses every other type.
struct Without<S>(S);

/// The fields of a struct that omits the field [`JOB`].
struct Fields<S>(S);

impl<S: SerializeStruct> SerializeStruct for Fields<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        match name {
            JOB => self.0.skip_field(name),
            _ => self.0.serialize_field(name, value),
        }
    }
    fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
        self.0.skip_field(name)
    }
    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

/// Returns the error for a value that is no struct.
fn refused<T, E: serde::ser::Error>() -> Result<T, E> {
    Err(E::custom("an allocation is not encoded as a struct"))
}

macro_rules! refuse {
    ($($name:ident($($kind:ty),*)),* $(,)?) => {
        $(fn $name(self, $(_: $kind),*) -> Result<S::Ok, S::Error> {
            refused()
        })*
    };
}

impl<S: Serializer> Serializer for Without<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = Impossible<S::Ok, S::Error>;
    type SerializeStruct = Fields<S::SerializeStruct>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
    /// Begins a struct without the job. `fields` always includes the job, because an allocation without a job is
    /// written without this serializer.
    fn serialize_struct(self, name: &'static str, fields: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, fields - 1).map(Fields)
    }

    refuse! {
        serialize_bool(bool), serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]),
        serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64),
        serialize_f32(f32), serialize_f64(f64),
        serialize_none(), serialize_unit(), serialize_unit_struct(&'static str),
        serialize_unit_variant(&'static str, u32, &'static str),
    }
    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<S::Ok, S::Error> {
        refused()
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        refused()
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        refused()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        refused()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, S::Error> {
        refused()
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        refused()
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        refused()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        refused()
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocDeploymentStatus, AllocatedResources, TaskState};
    use caravan_types::eval::AllocMetric;
    use caravan_types::job::Job;
    use caravan_types::packed::Packed;
    use caravan_types::packed::row::AllocOfJob;
    use std::sync::Arc;

    /// Returns the bytes of a row that is encoded from a copy of the allocation.
    fn of_copy(alloc: &Allocation, job: Option<u32>) -> Vec<u8> {
        AllocOfJob { alloc: Allocation { job: None, ..alloc.clone() }, job }.pack().unwrap()
    }

    #[test]
    fn a_row_has_the_bytes_of_a_copy_without_its_job() {
        let plain = Allocation { id: "a1".into(), name: "web.api[0]".to_owned(), ..Allocation::default() };
        let rich = Allocation {
            job: Some(Arc::new(Job { id: "web".into(), ..Job::default() })),
            allocated_resources: Some(Arc::new(AllocatedResources::default())),
            metrics: Some(Arc::new(AllocMetric::default())),
            task_states: [("main".to_owned(), TaskState::default())].into(),
            deployment_status: Some(AllocDeploymentStatus::default()),
            preempted_allocations: vec!["a0".into()],
            modify_index: 7,
            ..plain.clone()
        };
        for (alloc, job) in [(&plain, None), (&rich, Some(3)), (&rich, None)] {
            let bytes = rmp_serde::to_vec_named(&AllocRow::new(alloc, job)).unwrap();
            assert_eq!(bytes, of_copy(alloc, job));
            let back = AllocOfJob::unpack(&bytes).unwrap();
            assert_eq!(back, AllocOfJob { alloc: Allocation { job: None, ..alloc.clone() }, job });
        }
        assert!(rmp_serde::to_vec_named(&rich).unwrap() != of_copy(&rich, Some(3)), "the job is encoded");
    }

    #[test]
    fn only_structs_pass() {
        let mut out = Vec::new();
        let refusal = 7_u64.serialize(Without(&mut rmp_serde::Serializer::new(&mut out))).unwrap_err();
        assert!(refusal.to_string().contains("not encoded as a struct"), "{refusal}");
    }
}
