//! Tokens as one would write them, for messages.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

/// The text of an expression, spaced as usual. Never parsed again, so a rare odd space does no
/// harm.
pub(crate) fn of(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    write(&mut text, tokens.to_token_stream());
    text
}

fn write(text: &mut String, tokens: TokenStream) {
    // What the token before was, so far as the space after it depends on that.
    #[derive(Clone, Copy, PartialEq)]
    enum Before {
        /// Nothing, or what wants no space after it: `.`, `::`, a unary operator.
        Tight,
        /// A name, a literal or a group.
        Operand,
        /// A word or operator that wants an operand: `as`, `+`, `,`.
        Operator,
    }
    let mut before = Before::Tight;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                let call = before == Before::Operand
                    && matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::Bracket);
                if before != Before::Tight && !call {
                    text.push(' ');
                }
                text.push_str(open);
                write(text, group.stream());
                text.push_str(close);
                before = Before::Operand;
            }
            TokenTree::Punct(first) => {
                let mut operator = String::from(first.as_char());
                let mut spacing = first.spacing();
                while spacing == Spacing::Joint {
                    let Some(TokenTree::Punct(next)) = tokens.peek() else {
                        break;
                    };
                    // `&&` and `==` are one operator, `==-` and `&&!` are two.
                    if matches!(next.as_char(), '!' | '-' | '*' | '\'') {
                        break;
                    }
                    operator.push(next.as_char());
                    spacing = next.spacing();
                    tokens.next();
                }
                before = match operator.as_str() {
                    "." | "::" | ".." | "..=" | "'" => {
                        if before == Before::Operator {
                            text.push(' ');
                        }
                        text.push_str(&operator);
                        Before::Tight
                    }
                    "," | ";" | "?" | ":" => {
                        text.push_str(&operator);
                        if operator == "?" { Before::Operand } else { Before::Operator }
                    }
                    // A macro's bang.
                    "!" if before == Before::Operand => {
                        text.push('!');
                        Before::Operand
                    }
                    "!" | "-" | "*" | "&" if before != Before::Operand => {
                        if before == Before::Operator {
                            text.push(' ');
                        }
                        text.push_str(&operator);
                        Before::Tight
                    }
                    _ => {
                        if before != Before::Tight {
                            text.push(' ');
                        }
                        text.push_str(&operator);
                        Before::Operator
                    }
                };
            }
            word @ (TokenTree::Ident(_) | TokenTree::Literal(_)) => {
                let word = word.to_string();
                if before != Before::Tight {
                    text.push(' ');
                }
                text.push_str(&word);
                before = match word.as_str() {
                    "as" | "if" | "else" | "match" | "in" | "return" | "move" => Before::Operator,
                    _ => Before::Operand,
                };
            }
        }
    }
}
