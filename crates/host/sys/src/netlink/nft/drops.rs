//! Rules that drop every packet. Firewalls such as firewalld end a chain with one, in place of a policy.

use super::super::message::Attributes;

const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const IMMEDIATE_DATA: u16 = 2;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const TARGET_NAME: u16 = 1;
const DROP: [u8; 4] = [0, 0, 0, 0];
const ACCEPT: [u8; 4] = [0, 0, 0, 1];

/// Returns whether a rule with these expressions drops or rejects each packet that reaches the rule; `None` if the rule
/// has a condition, or does not decide about packets.
pub(super) fn drops_all(expressions: Attributes<'_>) -> Option<bool> {
    for (_, expression) in expressions {
        let expression = Attributes(expression);
        let data = expression.within(EXPRESSION_DATA);
        match expression.text(EXPRESSION_NAME)?.as_str() {
            "counter" | "log" => {}
            "reject" => return Some(true),
            "immediate" => {
                let verdict = data.within(IMMEDIATE_DATA).within(DATA_VERDICT).find(VERDICT_CODE)?;
                return match verdict.try_into().ok()? {
                    DROP => Some(true),
                    ACCEPT => Some(false),
                    _ => None,
                };
            }
            // A target of iptables, which nf_tables runs unchanged.
            "target" => return (data.text(TARGET_NAME)? == "REJECT").then_some(true),
            _ => return None,
        }
    }
    None
}
