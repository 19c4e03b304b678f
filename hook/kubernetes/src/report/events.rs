//! Posts events of pods: what the host's event file says about their containers.
//! Touches: the API server; the event file and records, by reading them; the file with the place.

use crate::api::{ApiError, Cluster};
use crate::base::log;
use crate::base::settings::Settings;
use crate::report::board::{Board, Due, Request};
use crate::report::notices;
use crate::report::pace::Pace;
use crate::report::tail::Tail;
use gpuslice_host::base::clock;
use gpuslice_host::events::Event;
use gpuslice_host::slices::records::{self, SliceRecord};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the event file is looked at. A look without news is three system calls.
const LOOK: Duration = Duration::from_secs(2);

/// An event that is older than this is not posted: a later event repeats it, or the pod is gone.
const OLDEST: Duration = Duration::from_secs(600);

/// The requests of a node: one in this time, and so many at once.
const INTERVAL: Duration = Duration::from_secs(10);
const BURST: u32 = 20;

/// Posts the events.
pub struct Events {
    settings: Arc<Settings>,
    cluster: Cluster,
    tail: Tail,
    board: Board,
    pace: Pace,
    /// Whether the last look failed, so that a failure is one log line.
    has_failed: bool,
}

impl Events {
    /// The events of this node.
    #[must_use]
    pub fn new(settings: Arc<Settings>, cluster: Cluster) -> Events {
        let tail = Tail::new(settings.host().events(), settings.events_place());
        Events {
            settings,
            cluster,
            tail,
            board: Board::default(),
            pace: Pace::new("events of pods", INTERVAL, BURST, Instant::now()),
            has_failed: false,
        }
    }

    /// Runs until the process ends.
    pub async fn keep(mut self) {
        loop {
            if let Err(error) = self.look().await
                && !self.has_failed
            {
                let file = self.settings.host().events();
                log::line(&format!("no events of pods: {}: {error}", file.display()));
                self.has_failed = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&mut self) -> std::io::Result<()> {
        loop {
            let lines = self.tail.lines()?;
            if lines.is_empty() {
                break;
            }
            self.add(&lines);
            tokio::task::yield_now().await;
        }
        while let Some(request) = self.board.next(self.cluster.node_name(), Instant::now()) {
            if !self.pace.take(Instant::now()) {
                break;
            }
            self.post(&request).await;
        }
        if self.pace.is_forbidden() {
            self.board.drop_new();
        }
        if self.board.is_settled() {
            self.tail.save()?;
        }
        self.has_failed = false;
        Ok(())
    }

    fn add(&mut self, lines: &[String]) {
        let mut known: Option<Vec<SliceRecord>> = None;
        for line in lines {
            let Ok(event) = serde_json::from_str::<Event>(line) else {
                continue;
            };
            let age = clock::parse(&event.time).and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > OLDEST) {
                continue;
            }
            let host = self.settings.host();
            let records = known.get_or_insert_with(|| {
                let survey = records::survey(&host);
                survey.map(|(records, _)| records).unwrap_or_default()
            });
            for notice in notices::of(&event, records) {
                self.board.add(notice, Instant::now());
            }
        }
    }

    async fn post(&mut self, request: &Request) {
        let now = Instant::now();
        let Request {
            namespace, name, ..
        } = request;
        let asked = match &request.due {
            Due::Create(event) => match serde_json::from_value(event.clone()) {
                Ok(event) => self.cluster.create_event(namespace, &event).await,
                Err(_) => return self.board.forget(request),
            },
            Due::Change(values) => self.cluster.patch_event(namespace, name, values).await,
        };
        self.pace.note(&asked, now);
        match asked {
            Ok(()) => self.board.note_posted(request, now),
            // A process that was killed has created it.
            Err(error) if error.code() == Some(409) => self.board.note_posted(request, now),
            Err(error) if error.code() == Some(404) && matches!(request.due, Due::Change(_)) => {
                self.board.note_missing(request, now);
            }
            Err(error) if is_of_namespace(&error) => self.board.forget(request),
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                log::line(&format!("{namespace}/{name}: no event: {error}"));
                self.board.forget(request);
            }
            Err(error) if error.is_general() => self.board.note_failed(request, now),
            Err(error) => {
                if self.board.note_refused(request, now) {
                    log::line(&format!("{namespace}/{name}: no event yet: {error}"));
                }
            }
        }
    }
}

/// Whether the namespace is gone, or about to go.
fn is_of_namespace(error: &ApiError) -> bool {
    let is_ending = |message: &str| message.contains("is being terminated");
    match error {
        ApiError::Refused { code: 404, .. } => true,
        ApiError::Refused {
            code: 403, message, ..
        } => is_ending(message),
        _ => false,
    }
}
