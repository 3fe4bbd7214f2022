/**
 * Markdown of a model as nodes. No HTML passes through: the parser leaves tags as text, and every element is created
 * here from a list, so that an answer cannot bring markup, scripts or requests of its own.
 */
import MarkdownIt from 'markdown-it';
import type Token from 'markdown-it/lib/token.mjs';
import { h, type ComponentChildren, type JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { CodeBlock } from './code-block.js';

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true });

/** Longer texts, and texts of more parts, are shown as they are: the page has to stay quick whatever a model writes. */
const maxLength = 60_000;
const maxTokens = 6_000;

/** Elements without attributes. */
const plainTags = new Set('p h1 h2 h3 h4 h5 h6 ul li blockquote em strong s thead tbody tr td th'.split(' '));
/** Headings below those of the page. */
const shiftedTags: Readonly<Record<string, string>> = { h1: 'h3', h2: 'h4', h3: 'h5', h4: 'h6', h5: 'h6' };
const safeLink = /^(https?:|mailto:)/i;

interface MarkdownProps {
  readonly text: string;
  /** Whether more text may follow: code is not yet highlighted. */
  readonly isOpen: boolean;
}

export function Markdown({ text, isOpen }: MarkdownProps): JSX.Element {
  const children = useMemo(() => render(text, isOpen), [text, isOpen]);
  return <div class="markdown">{children}</div>;
}

function render(text: string, isOpen: boolean): ComponentChildren {
  const tokens = text.length > maxLength ? [] : parser.parse(text, {});
  const numTokens = tokens.reduce((sum, { children }) => sum + 1 + (children?.length ?? 0), 0);
  if (text.length <= maxLength && numTokens <= maxTokens) return nodesOf(tokens, isOpen);
  return (
    <>
      <p>
        <small>Shown as plain text because it is long.</small>
      </p>
      <pre class="long" tabIndex={0}>
        {text}
      </pre>
    </>
  );
}

interface OpenElement {
  readonly token: Token | undefined;
  readonly children: ComponentChildren[];
}

/** Elements open and close in a flat list. */
function nodesOf(tokens: readonly Token[], isOpen: boolean): ComponentChildren[] {
  const root: OpenElement = { token: undefined, children: [] };
  const stack = [root];
  for (const token of tokens) {
    const { children } = stack.at(-1) as OpenElement;
    if (token.hidden) continue;
    if (token.nesting === 1) stack.push({ token, children: [] });
    else if (token.nesting === 0) children.push(leaf(token, isOpen));
    else {
      const closed = stack.pop() as OpenElement;
      (stack.at(-1) as OpenElement).children.push(element(closed));
    }
  }
  return root.children;
}

function leaf(token: Token, isOpen: boolean): ComponentChildren {
  switch (token.type) {
    case 'inline':
      return nodesOf(token.children ?? [], isOpen);
    case 'fence':
    case 'code_block':
      return <CodeBlock code={token.content} language={token.info.trim().split(/\s/)[0] ?? ''} isOpen={isOpen} />;
    case 'code_inline':
      return <code>{token.content}</code>;
    case 'softbreak':
    case 'hardbreak':
      return <br />;
    case 'hr':
      return <hr />;
    case 'image':
      // loading it would tell its server who reads what
      return <Link href={token.attrGet('src') ?? ''}>{token.content || 'image'}</Link>;
    default:
      return token.content;
  }
}

function element({ token, children }: OpenElement): ComponentChildren {
  const tag = token?.tag ?? '';
  if (tag === 'a') return <Link href={token?.attrGet('href') ?? ''}>{children}</Link>;
  if (tag === 'table') {
    return (
      <div class="table" role="region" aria-label="Table" tabIndex={0}>
        <table>{children}</table>
      </div>
    );
  }
  if (tag === 'ol') return <ol start={Number(token?.attrGet('start') ?? 1)}>{children}</ol>;
  return plainTags.has(tag) ? h(shiftedTags[tag] ?? tag, null, children) : children;
}

interface LinkProps {
  readonly href: string;
  readonly children: ComponentChildren;
}

function Link({ href, children }: LinkProps): JSX.Element {
  if (!safeLink.test(href)) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
