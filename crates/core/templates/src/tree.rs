//! The preparation of a template's syntax tree. It checks function names before execution, and lets each body count
//! its steps. It replaces field access by a function of this crate, because variables have metadata next to their
//! items.

use crate::functions::{self, COUNT, GET};
use crate::session::Session;
use crate::{Fault, Template, limits, session};
use gotmpl::TemplateError;
use gotmpl::parse::{
    ActionNode, BranchNode, CommandNode, DefineNode, Expr, ListNode, Node, Number, Parser, PipeNode, Pos,
    SmolStr, TemplateNode,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The name of the whole template. No job file can contain this name.
pub(crate) const MAIN: &str = "\u{0}";

/// A mark that is appended to the text before parsing.
const END: &str = "\u{0}end\u{0}";

/// Parses a template.
pub(crate) fn read(template: &Template, session: &Arc<Session>) -> Result<gotmpl::Template, Fault> {
    let or = |supplied: &'_ str, default: &'static str| -> String {
        if supplied.is_empty() { default.to_owned() } else { supplied.to_owned() }
    };
    let (left, right) = (or(&template.left, "{{"), or(&template.right, "}}"));
    // The parser ends the template at a surplus `end`, and takes the end of the text for a missing `end`. The
    // position of a mark at the very end reveals both.
    let marked = format!("{}{END}", template.text);
    let parsed = Parser::new(&marked, &left, &right).and_then(Parser::parse);
    let (mut main, defines) = parsed.map_err(|error| Fault::Syntax(session::plain(&error)))?;
    let whole = matches!(main.nodes.last(), Some(Node::Text(last)) if last.text.ends_with(END));
    if !whole {
        let open = ends_within(&main) || defines.iter().any(|define| ends_within(&define.body));
        return Err(Fault::Syntax(match open {
            true => format!("a block is not closed: {left} end {right} is missing"),
            false => format!("{left} end {right} or {left} else {right} stands where no block is open"),
        }));
    }
    if let Some(Node::Text(last)) = main.nodes.last_mut() {
        last.text = Arc::from(last.text.strip_suffix(END).unwrap_or_default());
    }
    let mut names = BTreeSet::new();
    for define in defines.iter().filter(|define| !define.body.is_empty_tree()) {
        if !names.insert(define.name.clone()) {
            return Err(Fault::Syntax(format!("more than one template is called \"{}\"", define.name)));
        }
    }
    let base = gotmpl::Template::new("").max_range_iters(limits::ITERATIONS).funcs(functions::all(session));
    let ready = base.add_parse_tree(MAIN, body(&main)?);
    // An empty template never replaces another one.
    let empty_first = |define: &&DefineNode| !define.body.is_empty_tree();
    let mut defines: Vec<&DefineNode> = defines.iter().collect();
    defines.sort_by_key(empty_first);
    defines
        .into_iter()
        .try_fold(ready, |ready, define| Ok(ready.add_parse_tree(&define.name, body(&define.body)?)))
}

/// Returns whether the mark is within a block.
fn ends_within(list: &ListNode) -> bool {
    let branch =
        |branch: &BranchNode| ends_within(&branch.body) || branch.else_body.as_ref().is_some_and(ends_within);
    list.nodes.iter().any(|node| match node {
        Node::Text(text) => text.text.ends_with(END),
        Node::List(list) => ends_within(list),
        Node::If(inner) | Node::Range(inner) | Node::With(inner) => branch(inner),
        Node::Define(define) => ends_within(&define.body),
        Node::Action(_) | Node::Template(_) | Node::Break(_) | Node::Continue(_) => false,
    })
}

/// Returns a body that counts its steps at each execution.
fn body(list: &ListNode) -> Result<ListNode, Fault> {
    let mut nodes = Vec::with_capacity(list.nodes.len() + 1);
    let steps = i64::try_from(list.nodes.len()).unwrap_or(i64::MAX).saturating_mul(256).saturating_add(256);
    let args = vec![name(list.pos, COUNT), Expr::Number(list.pos, Number::Int(steps))];
    nodes.push(Node::Action(ActionNode { pos: list.pos, pipe: pipe_of(list.pos, args) }));
    for node in &list.nodes {
        nodes.push(self::node(node)?);
    }
    Ok(ListNode { pos: list.pos, nodes })
}

fn node(node: &Node) -> Result<Node, Fault> {
    Ok(match node {
        Node::List(list) => Node::List(body(list)?),
        Node::Action(action) => Node::Action(ActionNode { pos: action.pos, pipe: pipe(&action.pipe)? }),
        Node::If(branch) => Node::If(self::branch(branch)?),
        Node::Range(branch) => Node::Range(self::branch(branch)?),
        Node::With(branch) => Node::With(self::branch(branch)?),
        Node::Template(call) => Node::Template(TemplateNode {
            pos: call.pos,
            name: call.name.clone(),
            pipe: call.pipe.as_ref().map(pipe).transpose()?,
        }),
        Node::Text(_) | Node::Define(_) | Node::Break(_) | Node::Continue(_) => node.clone(),
    })
}

fn branch(branch: &BranchNode) -> Result<BranchNode, Fault> {
    Ok(BranchNode {
        pos: branch.pos,
        pipe: pipe(&branch.pipe)?,
        body: body(&branch.body)?,
        else_body: branch.else_body.as_ref().map(body).transpose()?,
    })
}

fn pipe(pipe: &PipeNode) -> Result<PipeNode, Fault> {
    let commands = pipe.commands.iter().map(command).collect::<Result<_, _>>()?;
    Ok(PipeNode { pos: pipe.pos, decl: pipe.decl.clone(), commands, is_assign: pipe.is_assign })
}

fn command(command: &CommandNode) -> Result<CommandNode, Fault> {
    if command.args.len() > limits::ARGUMENTS {
        return Err(Fault::Syntax(format!("a call has more than {} arguments", limits::ARGUMENTS)));
    }
    let args = match command.args.as_slice() {
        // Methods with arguments.
        [Expr::Chain(pos, of, fields), rest @ ..] if is_scratch(of) => {
            let method = fields.first().map_or("", SmolStr::as_str);
            let function = functions::scratch(method).filter(|_| fields.len() == 1);
            let function = function
                .ok_or_else(|| Fault::Function(format!("function \"scratch\" has no method \"{method}\"")))?;
            std::iter::once(Ok(name(*pos, function)))
                .chain(rest.iter().map(expr))
                .collect::<Result<_, _>>()?
        }
        [base, one] if let Some(base) = without_last(base, "Contains") => {
            vec![name(base.pos(), "contains"), expr(one)?, expr(&base)?]
        }
        all => all.iter().map(expr).collect::<Result<_, _>>()?,
    };
    Ok(CommandNode { pos: command.pos, args })
}

fn is_scratch(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_, name) if name == "scratch")
}

/// Returns the expression before the last field, if that field has the desired name.
fn without_last(expr: &Expr, desired: &str) -> Option<Expr> {
    let shorter = |fields: &[SmolStr]| match fields.split_last() {
        Some((last, rest)) if last == desired => Some(rest.to_vec()),
        _ => None,
    };
    Some(match expr {
        Expr::Field(pos, fields) => match shorter(fields)? {
            rest if rest.is_empty() => Expr::Dot(*pos),
            rest => Expr::Field(*pos, rest),
        },
        Expr::Variable(pos, name, fields) => Expr::Variable(*pos, name.clone(), shorter(fields)?),
        Expr::Chain(pos, of, fields) => match shorter(fields)? {
            rest if rest.is_empty() => (**of).clone(),
            rest => Expr::Chain(*pos, of.clone(), rest),
        },
        _ => return None,
    })
}

fn expr(expr: &Expr) -> Result<Expr, Fault> {
    Ok(match expr {
        Expr::Identifier(_, name) => {
            functions::check(name)?;
            expr.clone()
        }
        Expr::Field(pos, fields) => get(*pos, Expr::Dot(*pos), fields),
        Expr::Variable(pos, name, fields) if !fields.is_empty() => {
            get(*pos, Expr::Variable(*pos, name.clone(), Vec::new()), fields)
        }
        Expr::Chain(pos, of, fields) if is_scratch(of) => {
            // A method without arguments.
            let call = CommandNode { pos: *pos, args: vec![Expr::Chain(*pos, of.clone(), fields.clone())] };
            Expr::Pipe(
                *pos,
                PipeNode { pos: *pos, decl: Vec::new(), commands: vec![command(&call)?], is_assign: false },
            )
        }
        Expr::Chain(pos, of, fields) => get(*pos, self::expr(of)?, fields),
        Expr::Pipe(pos, inner) => Expr::Pipe(*pos, pipe(inner)?),
        Expr::Dot(_)
        | Expr::Variable(..)
        | Expr::String(..)
        | Expr::Number(..)
        | Expr::Bool(..)
        | Expr::Nil(_) => expr.clone(),
    })
}

fn get(pos: Pos, of: Expr, fields: &[SmolStr]) -> Expr {
    let fields = fields.iter().map(|field| Expr::String(pos, Arc::from(field.as_str())));
    let args = [name(pos, GET), of].into_iter().chain(fields).collect();
    Expr::Pipe(pos, pipe_of(pos, args))
}

fn name(pos: Pos, name: &str) -> Expr {
    Expr::Identifier(pos, SmolStr::new(name))
}

fn pipe_of(pos: Pos, args: Vec<Expr>) -> PipeNode {
    PipeNode { pos, decl: Vec::new(), commands: vec![CommandNode { pos, args }], is_assign: false }
}

/// Creates an error of the engine.
pub(crate) fn error(why: String) -> TemplateError {
    TemplateError::Exec(why)
}
