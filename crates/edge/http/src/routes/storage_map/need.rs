//! The needs of volumes: ranks, the numbers of volumes by rank, and the ranked list of which the picture shows a
//! part.

use crate::error::ApiError;
use crate::filter::Filter;
use crate::query::Query;
use caravan_types::volume::{Claim, ClaimPhase, Volume, VolumePhase};
use caravan_types::{NodeId, PluginId};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most nodes whose volumes an answer counts for one plugin.
const MAX_HOMES: usize = 300;
/// The value of `home` for volumes without a node.
const NO_HOME: &str = "none";
/// The name of each rank in `rank`, in the order of [`Rank`]. Volumes that need nothing themselves cannot be
/// selected.
const NAMES: [(&str, Rank); 4] = [
    ("failed", Rank::Failed),
    ("waiting", Rank::Waiting),
    ("fencing", Rank::Fencing),
    ("changing", Rank::Changing),
];

/// The need of a volume, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A step of the volume or of a claim failed.
    Failed,
    /// A job or a claim cannot continue before another claim is released, or before the node or plugin answers.
    Waiting,
    /// A claim waits for the end of a fence.
    Fencing,
    /// The volume or a claim is between two states.
    Changing,
    /// Only the plugin has trouble.
    Sick,
    /// The volume needs nothing.
    Rest,
}

impl Rank {
    /// Parses names of ranks, separated by commas.
    pub(super) fn parse(text: &str) -> Result<Vec<Self>, ApiError> {
        let one = |name: &str| {
            let found = NAMES.iter().find(|(own, _)| *own == name).map(|(_, rank)| *rank);
            found.ok_or_else(|| {
                ApiError::bad_request(format!(
                    "`rank` has {name:?}, which is none of `failed`, `waiting`, `fencing`, `changing`"
                ))
            })
        };
        text.split(',').filter(|name| !name.is_empty()).map(one).collect()
    }

    /// Returns the rank of a volume. Each claim that holds the volume comes with a flag: whether a wait is recorded
    /// for the claim. `is_blocked`: a job waits for a claim.
    pub(super) fn new<'a>(
        volume: &Volume,
        claims: impl Iterator<Item = (&'a Claim, bool)>,
        is_blocked: bool,
        is_sick: bool,
    ) -> Self {
        let own = match volume.phase {
            _ if !volume.last_error.is_empty() => Self::Failed,
            _ if is_blocked => Self::Waiting,
            VolumePhase::Ready if is_sick => Self::Sick,
            VolumePhase::Ready => Self::Rest,
            _ => Self::Changing,
        };
        let worst = claims.map(|(claim, waits)| match claim.phase {
            _ if !claim.last_error.is_empty() => Self::Failed,
            ClaimPhase::Fencing => Self::Fencing,
            _ if waits => Self::Waiting,
            ClaimPhase::Mounted => Self::Rest,
            _ => Self::Changing,
        });
        worst.fold(own, Self::min)
    }

    /// Returns whether the volume itself needs nothing.
    fn is_calm(self) -> bool {
        self >= Self::Sick
    }
}

/// The numbers of volumes by need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Needs {
    pub(super) failed: usize,
    pub(super) waiting: usize,
    pub(super) fencing: usize,
    pub(super) changing: usize,
    pub(super) rest: usize,
}

impl Needs {
    pub(super) fn count(&mut self, rank: Rank) {
        let number = match rank {
            Rank::Failed => &mut self.failed,
            Rank::Waiting => &mut self.waiting,
            Rank::Fencing => &mut self.fencing,
            Rank::Changing => &mut self.changing,
            Rank::Sick | Rank::Rest => &mut self.rest,
        };
        *number += 1;
    }

    /// Returns the place of the worst need, 0 for a failure.
    fn worst(&self) -> usize {
        let numbers = [self.failed, self.waiting, self.fencing, self.changing];
        numbers.iter().position(|number| *number > 0).unwrap_or(numbers.len())
    }
}

/// A volume of the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'r> {
    pub(super) rank: Rank,
    /// The node below which the volume is drawn; `None` for a volume without claims.
    pub(super) home: Option<&'r NodeId>,
    pub(super) volume: &'r Arc<Volume>,
}

/// Returns the node below which a volume is drawn: the node of the mounted claim with the lowest allocation id, or of
/// any claim.
pub(super) fn home<'r>(claims: impl Iterator<Item = &'r Claim>) -> Option<&'r NodeId> {
    let first = claims.min_by_key(|claim| (claim.phase != ClaimPhase::Mounted, &claim.id.alloc));
    first.map(|claim| &claim.node_id)
}

/// Returns the numbers of a plugin's volumes by node, and the number of omitted nodes, which have the least need.
pub(super) fn homes<'r>(rows: impl Iterator<Item = &'r Row<'r>>) -> (BTreeMap<NodeId, Needs>, usize) {
    let mut found: BTreeMap<Option<&NodeId>, Needs> = BTreeMap::new();
    for row in rows {
        found.entry(row.home).or_default().count(row.rank);
    }
    let omitted = found.len().saturating_sub(MAX_HOMES);
    let mut sorted: Vec<(Option<&NodeId>, Needs)> = found.into_iter().collect();
    // The sort is stable: nodes with the same need stay in the order of their ids.
    sorted.sort_by_key(|(_, needs)| needs.worst());
    let kept = sorted.into_iter().take(MAX_HOMES);
    (kept.map(|(node, needs)| (node.cloned().unwrap_or_default(), needs)).collect(), omitted)
}

/// The place of a volume in the ranked list: a number for its need, its namespace, its id.
type Place<'r> = (u8, &'r str, &'r str);

/// The parameters of a ranked list.
pub(super) struct Ranking<'q> {
    filter: Option<Filter>,
    per_page: usize,
    /// The place of the first volume of the page.
    start: Option<Place<'q>>,
    /// The most volumes without trouble below one node.
    calm: Option<usize>,
    /// The nodes, by plugin, that `calm` does not concern. Their volumes come before others without trouble.
    open: Vec<(&'q str, Option<NodeId>)>,
    /// The node whose volumes are selected; `Some(None)` selects volumes without a node.
    home: Option<Option<NodeId>>,
}

/// A page of the ranked list.
pub(super) struct Page<'r> {
    pub(super) rows: Vec<Row<'r>>,
    /// The place of each row.
    pub(super) places: Vec<String>,
    /// The number of volumes before the page.
    pub(super) before: usize,
    /// The number of volumes on all pages.
    pub(super) listed: usize,
    /// The start of the next page; empty on the last page.
    pub(super) next: String,
}

impl<'q> Ranking<'q> {
    /// Reads the parameters; `None` without `worst`.
    pub(super) fn read(query: &'q Query) -> Result<Option<Self>, ApiError> {
        let number = query.text("worst");
        if number.is_empty() {
            let own = ["calm", "home", "open", "worst_token"];
            return match own.into_iter().find(|name| !query.text(name).is_empty()) {
                None => Ok(None),
                Some(name) => Err(ApiError::bad_request(format!("`{name}` needs `worst`"))),
            };
        }
        let per_page = number.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
            ApiError::bad_request(format!("`worst` is {number:?}; expected a number of volumes"))
        })?;
        let filter = match query.text("filter") {
            "" => None,
            text => Some(Filter::parse(text)?),
        };
        let calm = match query.text("calm") {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                ApiError::bad_request(format!("`calm` is {text:?}; expected a number of volumes"))
            })?),
        };
        let start = match query.text("worst_token") {
            "" => None,
            text => Some(parse_place(text).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "`worst_token` is {text:?}, which is no place of a ranked list"
                ))
            })?),
        };
        let node = |text: &str| (text != NO_HOME).then(|| NodeId::new(text));
        let home = Some(query.text("home")).filter(|text| !text.is_empty()).map(node);
        let opened = |text: &'q str| -> Result<(&'q str, Option<NodeId>), ApiError> {
            let (plugin, id) = text.split_once('/').ok_or_else(|| {
                ApiError::bad_request(format!("`open` is {text:?}; expected a plugin, `/` and a node"))
            })?;
            Ok((plugin, node(id)))
        };
        let open = query.all("open").map(opened).collect::<Result<_, ApiError>>()?;
        Ok(Some(Self { filter, per_page, start, calm, open, home }))
    }

    /// Returns whether the list begins at a place or has the volumes of one node.
    pub(super) fn is_part(&self) -> bool {
        self.start.is_some() || self.home.is_some()
    }

    /// Returns the volumes of the list. `object` returns the JSON of a volume for the filter.
    pub(super) fn select<'r>(
        &self,
        mut rows: Vec<Row<'r>>,
        object: impl Fn(&Row<'r>) -> Value,
    ) -> Result<Vec<Row<'r>>, ApiError> {
        rows.retain(|row| self.home.as_ref().is_none_or(|home| home.as_ref() == row.home));
        let Some(filter) = &self.filter else { return Ok(rows) };
        let mut selected = Vec::new();
        for row in rows {
            if filter.matches(&object(&row))? {
                selected.push(row);
            }
        }
        Ok(selected)
    }

    fn is_open(&self, row: &Row<'_>) -> bool {
        let is_it = |(plugin, node): &(&str, Option<NodeId>)| {
            row.volume.plugin_id == **plugin && node.as_ref() == row.home
        };
        self.open.iter().any(is_it)
    }

    /// Returns the place of a volume.
    fn place<'r>(&self, row: &Row<'r>) -> Place<'r> {
        let need = match row.rank {
            Rank::Failed => 0,
            Rank::Waiting => 1,
            Rank::Fencing => 2,
            Rank::Changing => 3,
            Rank::Sick | Rank::Rest if self.is_open(row) => 4,
            Rank::Sick => 5,
            Rank::Rest => 6,
        };
        (need, row.volume.namespace.as_str(), row.volume.id.as_str())
    }

    /// Sorts the volumes and cuts out the page. Example: with `calm=8`, of 1,000 volumes without trouble on one node
    /// the list has 8.
    pub(super) fn page<'r>(&self, rows: &[Row<'r>]) -> Page<'r> {
        let mut listed: Vec<(Place<'r>, Row<'r>)> = rows.iter().map(|row| (self.place(row), *row)).collect();
        listed.sort_by_key(|(place, _)| *place);
        if let Some(calm) = self.calm {
            let mut numbers: BTreeMap<(&PluginId, Option<&NodeId>), usize> = BTreeMap::new();
            listed.retain(|(_, row)| {
                if !row.rank.is_calm() || self.is_open(row) {
                    return true;
                }
                let number = numbers.entry((&row.volume.plugin_id, row.home)).or_default();
                *number += 1;
                *number <= calm
            });
        }
        let before = self.start.map_or(0, |start| listed.partition_point(|(place, _)| *place < start));
        let until = listed.len().min(before.saturating_add(self.per_page));
        let shown = &listed[before..until];
        Page {
            rows: shown.iter().map(|(_, row)| *row).collect(),
            places: shown.iter().map(|(place, _)| written(*place)).collect(),
            before,
            listed: listed.len(),
            next: listed.get(until).map(|(place, _)| written(*place)).unwrap_or_default(),
        }
    }
}

/// Returns the text of a place. Namespaces have no dots.
fn written((need, namespace, id): Place<'_>) -> String {
    format!("{need}.{namespace}.{id}")
}

fn parse_place(text: &str) -> Option<Place<'_>> {
    let (rank, rest) = text.split_once('.')?;
    let (namespace, id) = rest.split_once('.')?;
    Some((rank.parse().ok()?, namespace, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::volume::ClaimId;

    fn claim(phase: ClaimPhase, last_error: &str) -> Claim {
        Claim { phase, last_error: last_error.into(), ..Claim::default() }
    }

    #[test]
    fn trouble_has_an_order() {
        let ready = Volume { phase: VolumePhase::Ready, ..Volume::default() };
        let mounted = claim(ClaimPhase::Mounted, "");
        let rank = |volume: &Volume, claims: &[(&Claim, bool)], is_sick| {
            Rank::new(volume, claims.iter().copied(), false, is_sick)
        };
        let failed = claim(ClaimPhase::Attaching, "no");
        let fencing = claim(ClaimPhase::Fencing, "");
        let moving = claim(ClaimPhase::Attaching, "");
        assert_eq!(rank(&ready, &[(&mounted, false)], false), Rank::Rest);
        assert_eq!(rank(&ready, &[(&mounted, false)], true), Rank::Sick);
        assert_eq!(rank(&ready, &[(&mounted, false), (&moving, false)], true), Rank::Changing);
        assert_eq!(rank(&ready, &[(&fencing, true), (&moving, false)], false), Rank::Fencing);
        assert_eq!(rank(&ready, &[(&fencing, true), (&moving, true)], false), Rank::Waiting);
        assert_eq!(rank(&ready, &[(&moving, true), (&failed, true)], false), Rank::Failed);
        let broken = Volume { last_error: "full".into(), ..ready.clone() };
        assert_eq!(rank(&broken, &[], false), Rank::Failed);
        let claims = [(&mounted, false)];
        assert_eq!(Rank::new(&ready, claims.iter().copied(), true, false), Rank::Waiting);
        assert!(Rank::Failed < Rank::Waiting && Rank::Sick < Rank::Rest);
        assert_eq!(Rank::parse("waiting,fencing").ok(), Some(vec![Rank::Waiting, Rank::Fencing]));
        assert!(Rank::parse("").is_ok_and(|ranks| ranks.is_empty()) && Rank::parse("bad").is_err());
        let mut needs = Needs::default();
        needs.count(Rank::Waiting);
        needs.count(Rank::Sick);
        assert_eq!(needs, Needs { waiting: 1, rest: 1, ..Needs::default() });
    }

    #[test]
    fn a_volume_is_drawn_below_the_node_that_has_it() {
        let on = |phase, alloc: &str, node: &str| Claim {
            phase,
            id: ClaimId { alloc: alloc.into(), ..ClaimId::default() },
            node_id: node.into(),
            ..Claim::default()
        };
        let waiting = on(ClaimPhase::Reserved, "a", "far");
        let (one, two) = (on(ClaimPhase::Mounted, "b", "near"), on(ClaimPhase::Mounted, "c", "other"));
        assert_eq!(home([&waiting, &two, &one].into_iter()), Some(&"near".into()));
        assert_eq!(home([&waiting].into_iter()), Some(&"far".into()));
        assert_eq!(home(std::iter::empty()), None);
    }

    fn volumes(number: usize) -> Vec<Arc<Volume>> {
        let volume = |at: usize| Volume {
            id: format!("v{at:03}").as_str().into(),
            namespace: "default".into(),
            plugin_id: "p".into(),
            ..Volume::default()
        };
        (0..number).map(|at| Arc::new(volume(at))).collect()
    }

    fn ranking(text: &str) -> Result<Ranking<'static>, ApiError> {
        let query: &'static Query = Box::leak(Box::new(Query::parse(text)));
        Ok(Ranking::read(query)?.unwrap())
    }

    #[test]
    fn pages_of_the_ranked_list_reach_each_volume_once() {
        let (volumes, nodes) = (volumes(60), ["a".into(), "b".into()]);
        let row = |(at, volume)| Row {
            rank: if at % 7 == 0 { Rank::Waiting } else { Rank::Rest },
            home: (at % 3 < 2).then(|| &nodes[at % 3]),
            volume,
        };
        let rows: Vec<Row<'_>> = volumes.iter().enumerate().map(row).collect();
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let page = ranking(&format!("worst=7&worst_token={token}")).unwrap().page(&rows);
            assert_eq!((page.before, page.listed), (seen.len(), 60));
            seen.extend(page.rows.iter().map(|row| (row.rank, row.volume.id.to_string())));
            token = page.next;
            if token.is_empty() {
                break;
            }
        }
        assert!(seen.is_sorted() && seen.len() == 60, "{seen:?}");
        // A page may begin at the place of any row.
        let page = ranking("worst=99&worst_token=6.default.v010").unwrap().page(&rows);
        assert_eq!(page.rows[0].volume.id, "v010");
        // At most two calm volumes of a node, but all that wait.
        let page = ranking("worst=99&calm=2").unwrap().page(&rows);
        let waiting = page.rows.iter().filter(|row| row.rank == Rank::Waiting).count();
        assert_eq!((waiting, page.listed), (9, 9 + 3 * 2));
        // An open node has all of its volumes, before those of others.
        let page = ranking("worst=99&calm=2&open=p/a").unwrap().page(&rows);
        let opened = page.rows[9..].iter().take_while(|row| row.home == Some(&nodes[0])).count();
        assert_eq!((opened, page.listed), (17, 9 + 17 + 2 * 2));
        let on_none = |text: &str| {
            let selected = ranking(text).unwrap().select(rows.clone(), |_| Value::Null);
            selected.map(|rows| rows.len()).unwrap_or_default()
        };
        assert_eq!((on_none("worst=9&home=none"), on_none("worst=9&home=a")), (20, 20));
        for bad in [
            "worst=0",
            "worst=x",
            "worst=8&calm=x",
            "worst=8&worst_token=x",
            "worst=8&open=x",
            "calm=8",
            "worst_token=6.default.v010",
        ] {
            assert!(Ranking::read(&Query::parse(bad)).is_err(), "{bad}");
        }
        // The page in another order has a separate token and a separate order.
        let part = ranking("worst=5&sort=id&next_token=x&worst_token=6.default.v004&calm=2").unwrap();
        let page = part.page(&rows);
        assert_eq!((page.rows.len(), page.before, page.listed), (3, 9 + 3, 9 + 3 * 2));
        assert!(part.is_part() && !ranking("worst=5").unwrap().is_part());
        let (found, omitted) = homes(rows.iter());
        assert_eq!((found.len(), omitted, found[&NodeId::default()].waiting > 0), (3, 0, true));
    }

    #[test]
    fn the_nodes_with_the_worst_need_are_counted() {
        let (volumes, nodes) =
            (volumes(400), (0..400).map(|at| NodeId::new(format!("n{at:03}"))).collect::<Vec<_>>());
        let row = |(at, volume)| Row {
            rank: if at == 399 { Rank::Failed } else { Rank::Rest },
            home: Some(&nodes[at]),
            volume,
        };
        let rows: Vec<Row<'_>> = volumes.iter().enumerate().map(row).collect();
        let (found, omitted) = homes(rows.iter());
        assert_eq!((found.len(), omitted), (MAX_HOMES, 100));
        assert!(
            found.contains_key(&nodes[399])
                && found.contains_key(&nodes[0])
                && !found.contains_key(&nodes[398])
        );
    }
}
