//! YAML as the functions write and read it. What is written is block style, keys and strings in double quotes, texts of
//! several lines as literal blocks. What is read is one document of YAML 1.1, as libyaml takes it, with scalars that
//! mean what they mean in the reference.

mod cursor;
mod read;
mod scalar;
mod scan;
mod text;
mod write;

pub(super) use self::read::decode;
pub(super) use self::write::encode;

type Result<T> = std::result::Result<T, String>;

#[cfg(test)]
mod tests;
