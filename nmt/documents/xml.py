"""XML as a tree whose nodes keep their source text. lxml is not used, because it does not give the places of tags."""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

TOKEN = re.compile(
    r"""<!--.*?--> | <\?.*?\?> | <!\[CDATA\[.*?\]\]> | <!DOCTYPE(?:[^>"'] | "[^"]*" | '[^']*')*> | [^<]+
    | <(?P<end>/?)(?P<name>[^\s/>]+)(?:[^>"'] | "[^"]*" | '[^']*')*>""",
    re.DOTALL | re.VERBOSE,
)
ENCODING = re.compile(r"""\ufeff?<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-(?:8|16)["'])""", re.IGNORECASE)


@dataclass(eq=False)
class XmlNode:
    """An element, a text, a comment or a processing instruction. Only elements have a name."""

    name: str = ""  # the name with its namespace prefix
    opening: str = ""  # the opening tag, or the whole text or comment, as the source writes it
    children: list["XmlNode"] = field(default_factory=list)
    closing: str = ""  # the closing tag as the source writes it

    @property
    def local_name(self) -> str:
        """The name without the namespace prefix."""
        return self.name.rpartition(":")[2]

    @property
    def content(self) -> str:
        """The content between the tags, as the source writes it."""
        return "".join(child.raw for child in self.children)

    @property
    def raw(self) -> str:
        """The node with its content, as the source writes it."""
        return self.opening + self.content + self.closing


def read_xml(text: str) -> XmlNode:
    """Return a nameless node that contains a whole document. Raises ValueError as `check_xml` does."""
    check_xml(text)
    root = XmlNode()
    open_nodes = [root]  # the nodes that are open; the last one is the innermost
    # The document is well-formed, so each closing tag closes the innermost node.
    for token in TOKEN.finditer(text):
        if token["end"]:
            open_nodes.pop().closing = token[0]
            continue
        node = XmlNode(token["name"] or "", token[0])
        open_nodes[-1].children.append(node)
        if node.name and not node.opening.endswith("/>"):
            open_nodes.append(node)
    return root


def check_xml(text: str) -> None:
    """Raise ValueError if a document is malformed, declares entities, or declares another encoding than UTF-8.

    A document type may name a file, which is not read. It is refused if it contains declarations.
    """
    if ENCODING.match(text):
        raise ValueError("it declares another encoding than UTF-8")

    def check_document_type(_name: str, _system_id: object, _public_id: object, has_declarations: bool) -> None:
        if has_declarations:
            raise ValueError("a document type is not allowed to contain declarations")

    def refuse_entity(name: str, _is_parameter: bool) -> None:
        raise ValueError(f"line {parser.CurrentLineNumber}: the entity &{name}; is unknown")

    parser = expat.ParserCreate("utf-8", " ")  # " " turns on namespaces, so undeclared prefixes are errors
    parser.StartDoctypeDeclHandler = check_document_type
    parser.SkippedEntityHandler = refuse_entity
    try:
        parser.Parse(text.encode(errors="surrogatepass"), True)
    except expat.ExpatError as error:
        raise ValueError(f"line {error.lineno}: {expat.ErrorString(error.code)}") from error
