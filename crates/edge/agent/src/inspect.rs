//! Commands that inspect an agent's files without a running agent.

use crate::error::AgentError;
use crate::flags::Flags;
use crate::settings::{self, Settings};
use caravan_hcl::config::AgentConfig;
use caravan_hcl::diag::{Diagnostic, Diagnostics};
use std::path::{Path, PathBuf};

/// Validates configuration files and directories as `caravan agent -config` reads them. Returns the warnings for
/// operators.
///
/// # Errors
/// Returns every syntax error with its place, or the first invalid setting with its file. Each finding is a text
/// of one or more lines.
pub fn validate_config(paths: &[String]) -> Result<Vec<String>, Vec<String>> {
    let mut wrong = Vec::new();
    // Each path is read by itself: an unreadable one must not hide the errors of the others.
    for path in paths {
        match crate::read_texts(std::slice::from_ref(path)) {
            Ok(texts) => {
                wrong.extend(caravan_hcl::config::parse(&texts).err().map(render).unwrap_or_default())
            }
            Err(error) => wrong.push(caravan_sys::describe(&error)),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let flags = Flags::of_files(paths);
    let whole =
        crate::read_files(paths).and_then(|file| settings::resolve(&flags, file, &crate::host::look()));
    match whole {
        Ok(settings) => Ok(warnings(&settings)),
        Err(error) => {
            let what = without_lead(&error);
            Err(vec![match place_of(paths, &what) {
                Some(path) => format!("{}: {what}", path.display()),
                None => what,
            }])
        }
    }
}

/// Formats each finding with its place. If the sentence does not name the argument, it is appended.
fn render(found: Diagnostics) -> Vec<String> {
    let Diagnostics { items, sources } = found;
    let of = |item: &Diagnostic| {
        let line = item.one_line(&sources);
        let argument = item.span.and_then(|span| {
            let text = sources.get(span.source)?.text.get(..span.start)?;
            argument_before(text)
        });
        match argument {
            Some(name) if !line.contains(name) => format!("{line} (argument {name})"),
            _ => line,
        }
    };
    items.iter().map(of).collect()
}

/// Returns the name before a value: the name on the last line of `text`, which ends where the value begins.
fn argument_before(text: &str) -> Option<&str> {
    // The place of a text value begins after its opening quote.
    let line = text.rsplit('\n').next().unwrap_or(text).trim_end_matches('"').trim_end();
    let name = line.strip_suffix(['=', ':'])?.trim_end().trim_end_matches('"');
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let begin =
        name.rfind(|c| !is_name(c)).map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    Some(&name[begin..]).filter(|name| !name.is_empty())
}

/// Returns the file that causes the same error when it is read alone.
fn place_of(paths: &[String], what: &str) -> Option<PathBuf> {
    let files = paths.iter().filter_map(|path| crate::expand(Path::new(path)).ok()).flatten();
    let mut wrong = files.filter(|file| {
        let alone = crate::read_files(&[file.display().to_string()]).and_then(apart);
        alone.is_err_and(|error| without_lead(&error) == what)
    });
    wrong.next()
}

/// Resolves one file alone, with defaults for the settings that other files may hold.
fn apart(mut file: AgentConfig) -> Result<(), AgentError> {
    file.data_dir.get_or_insert_with(|| "/".to_owned());
    // The agent does not check a disabled role either.
    let on = |enabled: Option<bool>| enabled.unwrap_or(false);
    let server = file.server.as_ref().is_some_and(|server| on(server.enabled));
    let client = file.client.as_ref().is_some_and(|client| on(client.enabled));
    let mut alone = file.clone();
    if !server && !client {
        alone.server.get_or_insert_default().enabled = Some(true);
    }
    if client && !server {
        // Another file may name the client's servers.
        let own = alone.client.get_or_insert_default();
        own.servers.get_or_insert_with(|| vec!["127.0.0.1".to_owned()]);
    }
    settings::resolve(&Flags::default(), alone, &crate::host::look()).map(drop)
}

fn without_lead(error: &AgentError) -> String {
    let text = caravan_sys::describe(error);
    text.strip_prefix("configuration: ").unwrap_or(&text).trim_end().to_owned()
}

fn warnings(settings: &Settings) -> Vec<String> {
    let mut out = Vec::new();
    if !settings.tls.rpc {
        out.push(
            "mTLS is not configured: whoever reaches the RPC port may register a node and be sent jobs"
                .to_owned(),
        );
    }
    if settings.server.is_some() && !settings.acl.enabled {
        out.push("access control is off: whoever reaches the HTTP port may do everything".to_owned());
    }
    out
}

/// Returns the client's stored state in a directory: an agent's data directory, or the client's part of it. The JSON
/// has no secrets.
///
/// # Errors
/// Returns a sentence that explains why the state cannot be read.
pub fn client_state(path: &Path) -> Result<serde_json::Value, String> {
    let places: [PathBuf; 2] = [path.join("client"), path.to_owned()];
    let Some(dir) = places.iter().find(|dir| dir.join("client.redb").is_file()) else {
        let looked = places.map(|dir| dir.display().to_string()).join(", ");
        return Err(format!(
            "there is no client's state in {}: none of {looked} has a client.redb",
            path.display()
        ));
    };
    caravan_client::state_at_rest(dir).map_err(|error| caravan_sys::describe(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(files: &[(&str, &str)]) -> Result<Vec<String>, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<String> = files
            .iter()
            .map(|(name, text)| {
                let path = dir.path().join(name);
                std::fs::write(&path, text).unwrap();
                path.display().to_string()
            })
            .collect();
        let strip = |texts: Vec<String>| -> Vec<String> {
            texts.into_iter().map(|text| text.replace(&format!("{}/", dir.path().display()), "")).collect()
        };
        validate_config(&paths).map(strip).map_err(strip)
    }

    const GOOD: &str = "data_dir = \"/var/lib/caravan\"\nserver {\n  enabled = true\n}\n";

    #[test]
    fn what_an_agent_would_take_is_valid() {
        let render = validate(&[("a.hcl", GOOD)]).unwrap();
        assert!(render.iter().any(|line| line.starts_with("mTLS is not configured")), "{render:?}");
        // One file may omit settings that another file has.
        let (dirs, parts) = ("data_dir = \"/var/lib/caravan\"\n", "client {\n  enabled = true\n}\n");
        let servers = r#"{"client": {"servers": ["10.0.0.1"]}}"#;
        assert!(validate(&[("a.hcl", dirs), ("b.hcl", parts), ("c.json", servers)]).is_ok());
    }

    #[test]
    fn mistakes_name_their_file_and_field() {
        for (files, words) in [
            (
                vec![("a.hcl", GOOD), ("b.hcl", "ports {\n  http = 70000\n}\n")],
                vec!["b.hcl: ports.http: 70000"],
            ),
            (vec![("a.hcl", "server {\n  enabled = \"maybe\"\n}\n")], vec!["a.hcl:2", "enabled"]),
            (vec![("a.hcl", "clint {}\n"), ("b.hcl", "name = \n")], vec!["a.hcl:1", "clint", "b.hcl:2"]),
            (vec![("a.hcl", "data_dir = \"/d\"\n")], vec!["server, client: "]),
            (vec![("a.hcl", "server {\n  enabled = true\n}\n")], vec!["data_dir: "]),
        ] {
            let render = validate(&files).unwrap_err().join("\n");
            for word in words {
                assert!(render.contains(word), "{word:?} is not in {render}");
            }
        }
        let render = validate_config(&["/nonexistent/agent.hcl".into()]).unwrap_err();
        assert!(
            render[0].contains("/nonexistent/agent.hcl") && render[0].contains("No such file"),
            "{render:?}"
        );
    }

    #[test]
    fn arguments_are_found_before_their_values() {
        for (text, want) in [
            ("server {\n  enabled = ", Some("enabled")),
            ("  enabled = \"", Some("enabled")),
            ("{\"server\": {\"enabled\": ", Some("enabled")),
            ("a = 1\nserver {\n ", None),
            ("ä=", Some("ä")),
            ("", None),
        ] {
            assert_eq!(argument_before(text), want, "{text}");
        }
    }

    #[test]
    fn a_directory_without_a_client_says_where_it_looked() {
        let dir = tempfile::tempdir().unwrap();
        let error = client_state(dir.path()).unwrap_err();
        assert!(
            error.starts_with("there is no client's state in ") && error.contains("/client, "),
            "{error}"
        );
    }
}
