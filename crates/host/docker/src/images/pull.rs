//! The transfer of an image: from a registry, or from an archive in the task's directory.

use super::{NoImage, Order};
use crate::engine::{is_trouble, status, text};
use bollard::models::CreateImageInfo;
use bollard::query_parameters::{CreateImageOptionsBuilder, ImportImageOptions};
use bollard::{Docker, body_try_stream};
use caravan_sys::dir::{Dir, Mounts};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::io::ReaderStream;

/// Time between two lines about a pull in the agent's log.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Pulls an image. `progress` receives the state of the layers after each message of the engine.
pub(super) async fn pull(
    client: &Docker,
    order: &Order,
    progress: impl Fn(String) + Send,
) -> Result<(), NoImage> {
    let name = order.image.full();
    tracing::info!(image = name, "pulling image");
    match tokio::time::timeout(order.limit, transfer(client, order, progress)).await {
        Ok(result) => result,
        Err(_) => Err(failed(&name, &format!("it took longer than {:?}", order.limit), true)),
    }
}

fn failed(name: &str, cause: &str, recoverable: bool) -> NoImage {
    NoImage { message: format!("Failed to pull `{name}`: {cause}"), recoverable }
}

async fn transfer(client: &Docker, order: &Order, report: impl Fn(String) + Send) -> Result<(), NoImage> {
    let name = order.image.full();
    let version = order.image.digest.as_deref().or(order.image.tag.as_deref()).unwrap_or("latest");
    let options = CreateImageOptionsBuilder::default().from_image(&order.image.name).tag(version).build();
    let mut events = client.create_image(Some(options), None, order.credentials.clone());
    let mut progress = Progress::default();
    let mut reported = Instant::now();
    loop {
        let event = match tokio::time::timeout(order.idle_limit, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => {
                let cause = text(&error);
                // Only the engine's own answer that the image does not exist is final.
                let is_final = cause.starts_with("Error: image") && cause.contains("not found");
                return Err(failed(&name, &cause, !is_final));
            }
            Ok(None) => return Ok(()),
            Err(_) => {
                let cause = format!("there was no progress for {:?}", order.idle_limit);
                return Err(failed(&name, &cause, true));
            }
        };
        if let Some(message) = event.error_detail.as_ref().and_then(|detail| detail.message.as_deref()) {
            return Err(failed(&name, message, true));
        }
        progress.add(event);
        report(progress.words());
        if reported.elapsed() >= REPORT_PERIOD {
            reported = Instant::now();
            tracing::info!(image = name, progress = progress.words(), "image pull progress");
        }
    }
}

/// The known state of the layers of a pull.
#[derive(Debug, Default)]
struct Progress {
    layers: HashMap<String, Layer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layer {
    current: i64,
    total: i64,
    done: bool,
}

impl Progress {
    fn add(&mut self, event: CreateImageInfo) {
        let (Some(id), Some(status)) = (event.id, event.status) else { return };
        let layer = match status.as_str() {
            "Pulling fs layer" | "Waiting" => self.layers.entry(id).or_default(),
            // Other messages name an image or a tag instead of a layer.
            _ => match self.layers.get_mut(&id) {
                Some(layer) => layer,
                None => return,
            },
        };
        match status.as_str() {
            "Downloading" => {
                let detail = event.progress_detail.unwrap_or_default();
                layer.current = detail.current.unwrap_or_default();
                layer.total = detail.total.unwrap_or_default();
            }
            "Download complete" | "Pull complete" | "Already exists" => {
                layer.current = layer.total;
                layer.done = status != "Download complete";
            }
            _ => {}
        }
    }

    fn words(&self) -> String {
        let sum = |part: fn(&Layer) -> i64| self.layers.values().map(part).sum::<i64>();
        let done = self.layers.values().filter(|layer| layer.done).count();
        format!(
            "Pulled {done}/{} ({}MiB/{}MiB) layers",
            self.layers.len(),
            sum(|layer| layer.current) >> 20,
            sum(|layer| layer.total) >> 20
        )
    }
}

/// Loads an archive from the task's `local` directory. A task of the allocation may have placed a link there, so links
/// are not followed.
pub(super) async fn load(client: &Docker, local: &Path, archive: &str) -> Result<(), NoImage> {
    let unopened = |cause: String| NoImage::fatal(format!("unable to open image archive: {cause}"));
    let (local, below) = (local.to_owned(), PathBuf::from(archive));
    let opened = tokio::task::spawn_blocking(move || Dir::open(&local)?.read(&below, Mounts::Follow)).await;
    let file = match opened {
        Ok(Ok(file)) => file,
        Ok(Err(error)) => return Err(unopened(caravan_sys::describe(&error))),
        Err(_) => return Err(unopened("the agent is ending".to_owned())),
    };
    let body = body_try_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    let events =
        client.import_image(ImportImageOptions { quiet: true, ..ImportImageOptions::default() }, body, None);
    match events.try_for_each(|_| futures::future::ready(Ok(()))).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let recoverable = status(&error).is_none() && is_trouble(&error);
            Err(NoImage {
                message: format!("unable to load image archive {archive:?}: {}", text(&error)),
                recoverable,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    fn event(id: &str, status: &str, current: i64, total: i64) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: Some(ProgressDetail { current: Some(current), total: Some(total) }),
            ..CreateImageInfo::default()
        }
    }

    #[test]
    fn layers_are_counted() {
        let mut progress = Progress::default();
        progress.add(event("1.36", "Pulling from library/busybox", 0, 0));
        for layer in ["a", "b"] {
            progress.add(event(layer, "Pulling fs layer", 0, 0));
        }
        progress.add(event("a", "Downloading", 1 << 20, 4 << 20));
        progress.add(event("b", "Downloading", 2 << 20, 2 << 20));
        progress.add(event("b", "Pull complete", 0, 0));
        assert_eq!(progress.words(), "Pulled 1/2 (3MiB/6MiB) layers");
    }
}
