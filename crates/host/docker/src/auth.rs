//! Credentials of registries: from the job, a file of the `docker` command, or a helper program.

use crate::config::TaskAuth;
use crate::image::Reference;
use crate::options::AuthOptions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// The name under which files and helpers keep the credentials of the Hub.
const HUB: &str = "https://index.docker.io/v1/";
/// The longest time for a helper.
const HELPER_LIMIT: Duration = Duration::from_secs(60);

/// The part of a configuration file of the `docker` command that is about credentials.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthFile {
    auths: HashMap<String, Entry>,
    #[serde(rename = "credHelpers")]
    helpers: HashMap<String, String>,
    #[serde(rename = "credsStore")]
    store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
}

/// A helper's answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Secret {
    username: String,
    secret: String,
}

/// Returns the credentials for an image: the first that the job, the file or the helper has. The error names the
/// registry.
pub(crate) async fn find(
    image: &Reference,
    task: Option<&TaskAuth>,
    options: &AuthOptions,
) -> Result<Option<DockerCredentials>, String> {
    if let Some(task) = task {
        return Ok(Some(DockerCredentials {
            username: Some(task.username.clone()),
            password: Some(task.password.clone()),
            serveraddress: Some(task.server_address.clone()).filter(|address| !address.is_empty()),
            ..DockerCredentials::default()
        }));
    }
    let failed = |reason: String| format!("Failed to find docker auth for repo {:?}: {reason}", image.name);
    if let Some(path) = &options.config
        && let Some(found) = of_file(path, image).await.map_err(failed)?
    {
        return Ok(Some(found));
    }
    match &options.helper {
        Some(helper) => ask(helper, image.host().unwrap_or(HUB)).await.map(Some).map_err(failed),
        None => Ok(None),
    }
}

async fn of_file(path: &Path, image: &Reference) -> Result<Option<DockerCredentials>, String> {
    let shown = path.display();
    let text = tokio::fs::read(path).await.map_err(|error| format!("failed to read {shown}: {error}"))?;
    // The parser's error could quote the file, which holds secrets.
    let file: AuthFile = serde_json::from_slice(&text)
        .map_err(|error| format!("{shown} is not JSON at line {}", error.line()))?;
    let host = image.host();
    if let Some(entry) = entry(&file.auths, host)
        && let Some(found) =
            credentials(entry).ok_or_else(|| format!("an entry of {shown} cannot be read"))?
    {
        return Ok(Some(found));
    }
    let name = host.unwrap_or(HUB);
    let helper = file.helpers.get(name).or(Some(&file.store)).filter(|helper| !helper.is_empty());
    match helper {
        Some(helper) if helper.contains('/') => Err(format!("the helper {helper:?} in {shown} is a path")),
        Some(helper) => ask(helper, name).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the entry of a host. Old files have a scheme and a path around it.
fn entry<'a>(auths: &'a HashMap<String, Entry>, host: Option<&str>) -> Option<&'a Entry> {
    let Some(host) = host else { return auths.get(HUB) };
    let bare = |key: &str| {
        let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default() == host
    };
    auths.get(host).or_else(|| auths.iter().find(|(key, _)| bare(key)).map(|(_, entry)| entry))
}

/// Returns the credentials of an entry: the inner option is empty for an entry without any, the outer for an entry
/// that cannot be read.
fn credentials(entry: &Entry) -> Option<Option<DockerCredentials>> {
    let pair = |username: &str, password: &str| DockerCredentials {
        username: Some(username.to_owned()),
        password: Some(password.to_owned()),
        ..DockerCredentials::default()
    };
    if entry.auth.is_empty() {
        let empty = entry.username.is_empty() && entry.password.is_empty();
        return Some((!empty).then(|| pair(&entry.username, &entry.password)));
    }
    let text = String::from_utf8(STANDARD.decode(entry.auth.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Some(pair(username, password.trim_end_matches('\0'))))
}

async fn ask(helper: &str, registry: &str) -> Result<DockerCredentials, String> {
    let program = format!("docker-credential-{helper}");
    let run = async {
        let mut child = tokio::process::Command::new(&program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A helper need not read its input.
            let _unread = input.write_all(registry.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(HELPER_LIMIT, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{program} cannot be run: {error}")),
        Err(_) => return Err(format!("{program} took longer than {HELPER_LIMIT:?}")),
    };
    if !output.status.success() {
        return Err(format!(
            "{program} with input {registry:?} failed with stderr: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let secret: Secret =
        serde_json::from_slice(&output.stdout).map_err(|_| format!("{program} gave no credentials"))?;
    Ok(DockerCredentials {
        username: Some(secret.username),
        password: Some(secret.secret),
        ..DockerCredentials::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn look(file: &str, image: &str) -> Result<Option<(String, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, file).unwrap();
        let options = AuthOptions { config: Some(path), helper: None };
        let found = find(&Reference::parse(image).unwrap(), None, &options).await?;
        Ok(found.map(|c| (c.username.unwrap(), c.password.unwrap())))
    }

    fn pair(a: &str, b: &str) -> Option<(String, String)> {
        Some((a.to_owned(), b.to_owned()))
    }

    #[tokio::test]
    async fn files_are_searched_by_host() {
        let file = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOnA6dw=="},
            "r:5000": {"username": "u", "password": "p"}, "https://old.example/v1/": {"auth": "bzpw"}, "e.x": {}}}"#;
        assert_eq!(look(file, "busybox").await.unwrap(), pair("hub", "p:w"));
        assert_eq!(look(file, "r:5000/a").await.unwrap(), pair("u", "p"));
        assert_eq!(look(file, "old.example/a").await.unwrap(), pair("o", "p"));
        assert_eq!(look(file, "e.x/a").await.unwrap(), None);
        assert_eq!(look(file, "other:1/a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn wrong_files_are_named_without_their_secrets() {
        for file in [r#"{"auths": {"r:1": {"auth": "s3cret"}}}"#, r#"{"auths": "s3cret"}"#] {
            let error = look(file, "r:1/a").await.unwrap_err();
            assert!(error.contains("Failed to find docker auth") && !error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_missing_helper_is_an_error() {
        let options = AuthOptions { config: None, helper: Some("surely-absent".into()) };
        let error = find(&Reference::parse("a").unwrap(), None, &options).await.unwrap_err();
        assert!(error.contains("docker-credential-surely-absent"), "{error}");
    }

    #[tokio::test]
    async fn the_job_comes_first() {
        let task = TaskAuth { username: "u".into(), ..TaskAuth::default() };
        let options = AuthOptions { config: Some("/absent".into()), helper: None };
        let found = find(&Reference::parse("a").unwrap(), Some(&task), &options).await.unwrap().unwrap();
        assert_eq!(found.username.as_deref(), Some("u"));
    }
}
