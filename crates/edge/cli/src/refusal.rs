//! Problems that a server reports about a job, shown with the lines of the job's file.
//!
//! Servers of this release send problems as data, with the path of each in the job's JSON. [`foreign`] reads the
//! answers of other servers.

mod foreign;

use caravan_api::{self as api, JobProblem, Severity};
use caravan_hcl::diag::{Diagnostics, render};
use caravan_hcl::job::locate::{Place, locate, refused};
use caravan_hcl::{Source, Sources};

/// A refusal of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    /// The sentence of the server.
    pub(crate) text: &'a str,
    /// The problems as data; empty from Nomad's servers and older releases.
    pub(crate) problems: &'a [JobProblem],
}

impl Refusal<'_> {
    /// Returns whether there are single problems to show.
    pub(crate) fn is_itemised(&self) -> bool {
        !self.problems.is_empty() || foreign::is_list(self.text)
    }

    /// Returns the problems with the lines of the file that they are about; nothing without problems.
    pub(crate) fn shown(&self, job: &api::Job, source: Option<&Source>, colour: bool) -> Option<String> {
        let found = self.diagnostics(job, source);
        (!found.items.is_empty()).then(|| render::pretty(&found, colour).trim_end().to_owned())
    }

    /// Returns the errors as diagnostics.
    pub(crate) fn diagnostics(&self, job: &api::Job, source: Option<&Source>) -> Diagnostics {
        let id = job.id.as_deref().unwrap_or_default();
        let errors: Vec<&JobProblem> =
            self.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
        if errors.is_empty() {
            return foreign::diagnostics(self.text, id, source);
        }
        let json = serde_json::to_value(job).unwrap_or_default();
        let mut sources = Sources::default();
        let file = source.map(|source| sources.add(source.clone()));
        let whole = format!("job {id:?}");
        let items = errors
            .into_iter()
            .map(|problem| {
                let place = Place::of_path(&problem.path, &json);
                let span = file.and_then(|id| locate(&sources, id, &place.blocks, &place.arguments));
                refused(&whole, place.title(), &problem.text, span)
            })
            .collect();
        Diagnostics { items, sources }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"job "a" {
  priority = 500
  group "g" {
    task "t" {
      driver = "exec"
      resources {
        memory = 1
      }
    }
  }
}
"#;

    fn problem(path: &str, text: &str) -> JobProblem {
        JobProblem { path: path.parse().unwrap(), text: text.into(), ..JobProblem::default() }
    }

    #[test]
    fn problems_show_the_lines_they_are_about() {
        let source = Source::new("a.nomad.hcl", FILE);
        let job = caravan_hcl::job::parse(&source, &caravan_hcl::job::ParseOptions::default()).unwrap().0;
        // The reader of foreign texts does not recognize these words.
        let problems = [
            problem("TaskGroups[0].Tasks[0].Resources.MemoryMB", "too little"),
            problem("Priority", "too much"),
            JobProblem { severity: Severity::Warning, ..problem("Meta", "a warning") },
        ];
        let refusal = Refusal { text: "refused", problems: &problems };
        let shown = refusal.shown(&job, Some(&source), false).unwrap();
        for part in [
            "[E0701] Error: job \"a\" > group \"g\" > task \"t\"",
            "a.nomad.hcl:7:9",
            "memory = 1",
            "too little",
            "[E0701] Error: job \"a\"\n",
            "a.nomad.hcl:2:3",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        assert!(!shown.contains("a warning"), "{shown}");
        let bare = refusal.shown(&job, None, false).unwrap();
        assert!(bare.contains("job \"a\" > group \"g\" > task \"t\"\n   too little"), "{bare}");
    }

    #[test]
    fn texts_of_other_servers_are_read() {
        let text = "1 error occurred:\n\t* job priority must be between [1, 100]\n\n";
        let source = Source::new("a.nomad.hcl", FILE);
        let job = api::Job { id: Some("a".into()), ..api::Job::default() };
        let refusal = Refusal { text, problems: &[] };
        assert!(refusal.is_itemised());
        assert!(refusal.shown(&job, Some(&source), false).unwrap().contains("a.nomad.hcl:2:3"));
        let other = Refusal { text: "Permission denied", problems: &[] };
        assert!(!other.is_itemised());
        assert_eq!(other.shown(&job, Some(&source), false), None);
    }
}
