//! Encodes and decodes YAML. The encoder writes block style: keys and strings in double quotes, multi-line texts as
//! literal blocks. The decoder reads one document of YAML 1.1, as libyaml does, and interprets scalars as Nomad does.

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
