//! What a model says, which is Markdown. Raw HTML in it is text, and nothing in it loads anything.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::escape;

/// Appends Markdown as HTML.
pub(super) fn push(out: &mut String, markdown: &str) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page { out, columns: Vec::new(), column: 0, links: Vec::new() };
    for event in Parser::new_ext(markdown, options) {
        page.take(event);
    }
}

struct Page<'a> {
    out: &'a mut String,
    /// Of the table that is open.
    columns: Vec<Alignment>,
    column: usize,
    /// The links that are open, and whether each one leads somewhere.
    links: Vec<bool>,
}

impl Page<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Code(code) => {
                self.out.push_str("<code>");
                escape::push(self.out, &code);
                self.out.push_str("</code>");
            }
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>\n"),
            Event::Rule => self.out.push_str("<hr>\n"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => escape::push(self.out, &text),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let element = element(&tag.to_end());
        match tag {
            Tag::CodeBlock(kind) => {
                self.out.push_str("<pre class=\"code\">");
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.trim().is_empty()
                {
                    self.out.push_str("<span class=\"lang\">");
                    escape::push(self.out, language.trim());
                    self.out.push_str("</span>");
                }
                self.out.push_str("<code>");
            }
            Tag::List(Some(first)) if first != 1 => self.out.push_str(&format!("<ol start=\"{first}\">")),
            Tag::Table(columns) => {
                self.columns = columns;
                self.out.push_str("<div class=\"wide\"><table>");
            }
            Tag::TableHead | Tag::TableRow => {
                self.column = 0;
                self.out.push_str("<tr>");
            }
            Tag::TableCell => {
                let class = match self.columns.get(self.column) {
                    Some(Alignment::Right) => " class=\"right\"",
                    Some(Alignment::Center) => " class=\"center\"",
                    _ => "",
                };
                self.column += 1;
                self.out.push_str(&format!("<td{class}>"));
            }
            Tag::Link { dest_url, .. } => {
                let leads = leads_somewhere(&dest_url);
                self.links.push(leads);
                if leads {
                    self.out.push_str("<a rel=\"noopener noreferrer\" href=\"");
                    escape::push(self.out, &dest_url);
                    self.out.push_str("\">");
                }
            }
            // What it shows would have to be loaded. Its description follows, as text.
            Tag::Image { dest_url, .. } => {
                self.out.push_str("[picture at ");
                escape::push(self.out, &dest_url);
                self.out.push_str(": ");
            }
            _ if element.is_empty() => {}
            _ => self.out.push_str(&format!("<{element}>")),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::CodeBlock => self.out.push_str("</code></pre>\n"),
            TagEnd::Table => self.out.push_str("</table></div>\n"),
            TagEnd::TableHead | TagEnd::TableRow => self.out.push_str("</tr>\n"),
            TagEnd::TableCell => self.out.push_str("</td>"),
            TagEnd::Link if self.links.pop() == Some(true) => self.out.push_str("</a>"),
            TagEnd::Link => {}
            TagEnd::Image => self.out.push(']'),
            tag => match element(&tag) {
                "" => {}
                inline @ ("em" | "strong" | "del") => self.out.push_str(&format!("</{inline}>")),
                element => self.out.push_str(&format!("</{element}>\n")),
            },
        }
    }
}

/// The element of what has no further attributes. The page's own headings are above those of a message.
fn element(tag: &TagEnd) -> &'static str {
    match tag {
        TagEnd::Paragraph | TagEnd::HtmlBlock => "p",
        TagEnd::Heading(level) => match *level as u8 {
            1 => "h3",
            2 => "h4",
            3 => "h5",
            _ => "h6",
        },
        TagEnd::BlockQuote(_) => "blockquote",
        TagEnd::List(true) => "ol",
        TagEnd::List(false) => "ul",
        TagEnd::Item => "li",
        TagEnd::Emphasis => "em",
        TagEnd::Strong => "strong",
        TagEnd::Strikethrough => "del",
        _ => "",
    }
}

/// Only what a reader would expect of a link: it can't run anything.
fn leads_somewhere(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "mailto"))
}

#[cfg(test)]
mod tests {
    use super::push;

    fn html(markdown: &str) -> String {
        let mut out = String::new();
        push(&mut out, markdown);
        out.trim_end().to_owned()
    }

    #[test]
    fn markdown_is_shown_as_it_is_meant() {
        for (markdown, expected) in [
            ("a *b* **c** `d<e`", "<p>a <em>b</em> <strong>c</strong> <code>d&lt;e</code></p>"),
            ("# T\n- x\n- y", "<h3>T</h3>\n<ul><li>x</li>\n<li>y</li>\n</ul>"),
            ("3. x", "<ol start=\"3\"><li>x</li>\n</ol>"),
            (
                "```rust\nlet a = \"<\";\n```",
                "<pre class=\"code\"><span class=\"lang\">rust</span><code>let a = &quot;&lt;&quot;;\n</code></pre>",
            ),
            (
                "|a|b|\n|-|-:|\n|1|2|",
                "<div class=\"wide\"><table><tr><td>a</td><td class=\"right\">b</td></tr>\n<tr><td>1</td><td class=\"right\">2</td></tr>\n</table></div>",
            ),
            (
                "[x](https://a.example/?b&c)",
                "<p><a rel=\"noopener noreferrer\" href=\"https://a.example/?b&amp;c\">x</a></p>",
            ),
        ] {
            assert_eq!(html(markdown), expected);
        }
    }

    #[test]
    fn nothing_in_it_runs_or_loads() {
        for (markdown, expected) in [
            ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
            ("a <img src=x onerror=alert(1)> b", "<p>a &lt;img src=x onerror=alert(1)&gt; b</p>"),
            ("[x](javascript:alert(1))", "<p>x</p>"),
            ("[x](JaVaScRiPt:alert(1)) [y](data:text/html,z) [z](/etc/passwd)", "<p>x y z</p>"),
            ("![d](http://a.example/x.png)", "<p>[picture at http://a.example/x.png: d]</p>"),
            ("<https://a.example/\" onclick=\"x>", "<p>&lt;https://a.example/&quot; onclick=&quot;x&gt;</p>"),
        ] {
            assert_eq!(html(markdown), expected);
        }
    }
}
