//! The job language described by its own tables: a page for people, and a JSON Schema for editors. Both are made from
//! the tables that files are read by, so that they cannot say anything else.

mod page;
mod schema;

pub use self::page::page;
pub use self::schema::json_schema;

use crate::schema::{Content, Schema};

/// A table with the blocks in which it stands, the shortest way first.
struct Place {
    schema: &'static Schema,
    /// Each a way from the job to the block: `job > group > task`.
    ways: Vec<Vec<&'static str>>,
}

/// All tables of the job, each once, in the order in which they are met: a block before what is inside it.
fn places() -> Vec<Place> {
    let mut out: Vec<Place> = Vec::new();
    let mut queue = vec![(&crate::job::tables::JOB, vec!["job"])];
    let mut at = 0;
    while let Some((schema, way)) = queue.get(at).cloned() {
        at += 1;
        match out.iter_mut().find(|place| std::ptr::eq(place.schema, schema)) {
            Some(place) => {
                place.ways.push(way);
                continue;
            }
            None => out.push(Place { schema, ways: vec![way.clone()] }),
        }
        for block in schema.blocks {
            if let Content::Schema(inner) = block.content {
                let mut way = way.clone();
                way.push(block.name);
                queue.push((inner, way));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
