use super::*;
use crate::command::Command;
use crate::time::UnixNanos;

/// A change of a node as earlier versions wrote it: any change could be nested.
#[derive(Serialize)]
enum Earlier {
    NodeWhole { node: NodeId, change: Box<Change> },
}

fn changes() -> Vec<NodeChange> {
    let (node, evals) = (NodeId::new("n1"), vec![Evaluation { id: "e1".into(), ..Evaluation::default() }]);
    let row = Node { id: node.clone(), ..Node::default() };
    let drain = DrainStrategy::default();
    vec![
        NodeChange::NodeRegister { node: Box::new(row), evals: evals.clone() },
        NodeChange::NodeStatus {
            node: node.clone(),
            status: NodeStatus::Down,
            event: Some(NodeEvent::default()),
            evals: evals.clone(),
        },
        NodeChange::NodeEligibility {
            node: node.clone(),
            eligibility: Eligibility::Eligible,
            evals: evals.clone(),
        },
        NodeChange::NodeDrain {
            node: node.clone(),
            drain: Some(drain),
            mark_eligible: true,
            meta: BTreeMap::from([("why".to_owned(), "update".to_owned())]),
            accessor: "token:a".to_owned(),
            end: None,
            evals: evals.clone(),
        },
        NodeChange::NodeDelete { node, evals },
    ]
}

#[test]
fn changes_of_nodes_have_the_bytes_of_earlier_versions() {
    for change in changes() {
        let node = NodeId::new("n1");
        let earlier = Earlier::NodeWhole { node: node.clone(), change: Box::new(change.clone().into()) };
        let bytes = rmp_serde::to_vec_named(&earlier).unwrap();
        let whole = Change::NodeWhole { node, change: Box::new(change.clone()) };
        assert_eq!(rmp_serde::to_vec_named(&whole).unwrap(), bytes, "{}", change.kind());
        assert_eq!(rmp_serde::from_slice::<Change>(&bytes).unwrap(), whole);
        assert_eq!(whole.kind(), Change::from(change).kind());
    }
}

/// An entry of a log, recorded before the nested change had a separate type.
#[test]
fn a_recorded_entry_is_read() {
    let recorded =
        b"\x82\xa3now\x07\xa6change\x81\xa9NodeWhole\x82\xa4node\xa2n1\xa6change\x81\xafNodeEligibility\
        \x83\xa4node\xa2n1\xabeligibility\xaaineligible\xa5evals\x90";
    let change = NodeChange::NodeEligibility {
        node: "n1".into(),
        eligibility: Eligibility::Ineligible,
        evals: Vec::new(),
    };
    let whole = Change::NodeWhole { node: "n1".into(), change: Box::new(change) };
    let command = Command { now: UnixNanos(7), change: whole };
    assert_eq!(rmp_serde::from_slice::<Command>(recorded).unwrap(), command);
    assert_eq!(rmp_serde::to_vec_named(&command).unwrap(), recorded);
}

/// Earlier versions could represent these entries, but never wrote them.
#[test]
fn no_other_command_is_read_as_a_change_of_a_node() {
    for nested in [Change::Noop, Change::Evals { evals: Vec::new() }] {
        let entry = Earlier::NodeWhole { node: "n1".into(), change: Box::new(nested) };
        let bytes = rmp_serde::to_vec_named(&entry).unwrap();
        assert!(rmp_serde::from_slice::<Change>(&bytes).is_err());
    }
}
