"""XML as a tree whose nodes keep what is written. lxml has no source offsets of tags."""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

TOKEN = re.compile(
    r"""<!--.*?--> | <\?.*?\?> | <!\[CDATA\[.*?\]\]> | [^<]+
    | <(?P<end>/?)(?P<name>[^\s/>]+)(?:[^>"'] | "[^"]*" | '[^']*')*>""",
    re.DOTALL | re.VERBOSE,
)
ENCODING = re.compile(r"""\ufeff?<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-8["'])""", re.IGNORECASE)


@dataclass(eq=False)
class XmlNode:
    """An element, or a text, comment or instruction without a name."""

    name: str = ""  # with its prefix
    opening: str = ""  # as written, as are `closing` and `raw`
    children: list["XmlNode"] = field(default_factory=list)
    closing: str = ""

    @property
    def raw(self) -> str:
        """The node with all that is in it."""
        return self.opening + "".join(child.raw for child in self.children) + self.closing


def read_xml(text: str) -> XmlNode:
    """Return the root of a document. Raises ValueError if it is malformed or has a document type, as for entities."""
    check_xml(text)
    root = XmlNode()
    open_nodes = [root]  # the innermost last
    # The document is well-formed, so each end tag closes the innermost node.
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
    """Raise ValueError if a document is malformed, or has a document type."""
    if ENCODING.match(text):
        raise ValueError("it declares another encoding than UTF-8")

    def refuse(*_: object) -> None:
        raise ValueError("a document type is not allowed")

    parser = expat.ParserCreate("utf-8", " ")  # namespaces are on, so undeclared prefixes are errors
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode(errors="surrogatepass"), True)
    except expat.ExpatError as error:
        raise ValueError(f"line {error.lineno}: {expat.ErrorString(error.code)}") from error
