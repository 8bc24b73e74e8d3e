//! The input of `var put`: pairs on the command line, a JSON or HCL file, or both.

use super::Typed;
use crate::error::CliError;
use crate::jobfile;
use caravan_hcl::policy::VariableSpec;
use caravan_types::ser::Secrets;
use std::collections::BTreeMap;

/// The format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Hcl,
    Json,
}

/// The variable to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// The path of the variable.
    pub(super) path: String,
    /// The namespace, if a file sets one.
    pub(super) namespace: Option<String>,
    /// The items to store.
    pub(super) items: Secrets,
    /// The modify index, if a file sets one.
    pub(super) modify_index: Option<u64>,
}

/// Parses the arguments; `form` is the value of `-in`.
pub(super) fn read(args: &[Typed], form: Option<&str>) -> Result<Request, CliError> {
    let form = match form {
        None => None,
        Some("hcl") => Some(Form::Hcl),
        Some("json") => Some(Form::Json),
        Some(_) => {
            return Err(CliError::Usage("What is read must be HCL or JSON: use -in hcl or -in json".into()));
        }
    };
    let is_file = |typed: &Typed| typed.0 == "-" || typed.0.starts_with('@');
    let (path, file, pairs) = match args {
        [] => return Err(CliError::Usage("Not enough arguments (expected >1, got 0)".into())),
        [file, pairs @ ..] if is_file(file) => (None, Some(file), pairs),
        [path, file, pairs @ ..] if is_file(file) => (Some(path), Some(file), pairs),
        [_] => return Err(CliError::Usage("Must supply data".into())),
        [path, pairs @ ..] => (Some(path), None, pairs),
    };
    let spec = match file {
        None => VariableSpec::default(),
        Some(file) => of_file(&file.0, form)?,
    };
    let mut items = spec.items;
    for typed in pairs {
        let (name, value) = pair(typed)?;
        items.insert(name, value);
    }
    let path = path.map(|typed| typed.0.clone()).unwrap_or(spec.path);
    if path.is_empty() {
        return Err(CliError::Usage("The path must be given as an argument or in the file".into()));
    }
    let namespace = Some(spec.namespace).filter(|namespace| !namespace.is_empty());
    Ok(Request { path, namespace, items: Secrets::new(items), modify_index: spec.modify_index })
}

/// Parses `name=value`, or `name=@file` for the content of a file. `name=\@value` is a literal `@`.
fn pair(typed: &Typed) -> Result<(String, String), CliError> {
    let wrong = || CliError::failed("An item must be of the form NAME=VALUE");
    let (name, value) = typed.0.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let value = match value.strip_prefix('@') {
        Some(path) => jobfile::read_as(path, &format!("error reading {path:?}"))?,
        None => value.strip_prefix("\\@").map_or_else(|| value.to_owned(), |rest| format!("@{rest}")),
    };
    Ok((name.to_owned(), value))
}

fn of_file(file: &str, form: Option<Form>) -> Result<VariableSpec, CliError> {
    let path = file.strip_prefix('@').unwrap_or(file);
    let text = jobfile::read_as(path, &format!("error reading {path:?}"))?;
    let by_name = match std::path::Path::new(path).extension().and_then(|ext| ext.to_str()) {
        Some("hcl") => Some(Form::Hcl),
        Some("json") => Some(Form::Json),
        _ => None,
    };
    // Without a known extension, input that begins with `{` is JSON.
    let by_text = if text.trim_start().starts_with('{') { Form::Json } else { Form::Hcl };
    parse(&text, form.or(by_name).unwrap_or(by_text), if path == "-" { "<stdin>" } else { path })
}

/// Parses a file. Errors never contain the text, which may hold a secret.
fn parse(text: &str, form: Form, name: &str) -> Result<VariableSpec, CliError> {
    match form {
        Form::Hcl => caravan_hcl::policy::parse_variable(text, name).map_err(|found| {
            let what: Vec<String> = found.items.iter().map(|item| item.summary.to_string()).collect();
            CliError::failed(format!("Error parsing the variable in {name}: {}", what.join("; ")))
        }),
        Form::Json => {
            let wrong =
                || CliError::failed("The data must be a JSON object with an object of strings as \"Items\"");
            let value: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
            let items = value.get("Items").or_else(|| value.get("items")).ok_or_else(wrong)?;
            let items: BTreeMap<String, String> =
                serde_json::from_value(items.clone()).map_err(|_| wrong())?;
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let modify_index = value["ModifyIndex"].as_u64();
            Ok(VariableSpec { path: text("Path"), namespace: text("Namespace"), items, modify_index })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Vec<Typed> {
        words.iter().map(|word| Typed((*word).to_owned())).collect()
    }

    #[test]
    fn items_come_in_pairs_and_are_not_shown() {
        let args = typed(&["app", "user=u", "pass=a=b", "at=\\@x"]);
        let desired = read(&args, None).unwrap();
        let items = desired.items.expose();
        assert_eq!(
            (desired.path.as_str(), items["pass"].as_str(), items["at"].as_str()),
            ("app", "a=b", "@x")
        );
        assert!(!format!("{args:?}").contains("a=b"));
        assert_eq!(read(&typed(&["app"]), None).unwrap_err().to_string(), "Must supply data");
        let error = read(&typed(&["app", "hunter2"]), None).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(read(&typed(&["app", "a=b"]), Some("xml")).is_err());
    }

    #[test]
    fn files_are_json_or_hcl_and_pairs_lie_over_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let json = file("v.json", r#"{"Path": "app", "ModifyIndex": 7, "Items": {"a": "1", "b": "2"}}"#);
        let desired = read(&typed(&[&json, "b=3"]), None).unwrap();
        assert_eq!((desired.path.as_str(), desired.modify_index), ("app", Some(7)));
        assert_eq!(desired.items.expose()["b"], "3");
        let block = "path = \"app\"\nnamespace = \"team\"\nitems {\n  a = \"1\"\n}\n";
        let attribute = "path = \"app\"\nnamespace = \"team\"\nmodify_index = 7 # Set by server\nitems = {\n  a = \"1\"\n}\n";
        for text in [block, attribute] {
            let hcl = file("v.hcl", text);
            let desired = read(&typed(&["other", &hcl]), None).unwrap();
            assert_eq!(
                (desired.path.as_str(), desired.namespace.as_deref()),
                ("other", Some("team")),
                "{text}"
            );
            assert_eq!(desired.items.expose()["a"], "1");
        }
        let value = file("secret", "from a file");
        assert_eq!(
            read(&typed(&["app", &format!("k={value}")]), None).unwrap().items.expose()["k"],
            "from a file"
        );
        let absent = read(&typed(&["app/new", "@absent.hcl"]), None).unwrap_err().to_string();
        assert!(absent.starts_with("error reading \"absent.hcl\": "), "{absent}");
    }

    #[test]
    fn errors_contain_no_secrets() {
        for bad in ["", "[1]", r#"{"Items": "hunter2"}"#, r#"{"Items": {"a": 1}}"#] {
            assert!(!parse(bad, Form::Json, "f").unwrap_err().to_string().contains("hunter2"));
        }
        for bad in
            ["items { a = hunter2 }", "itms { a = \"hunter2\" }", "path = \"hunter2", "items = \"hunter2\""]
        {
            let error = parse(bad, Form::Hcl, "f").unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains("in f: "), "{error}");
        }
    }
}
