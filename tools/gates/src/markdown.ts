/** Markdown documents of the repository: their links, anchors, titles and first sentences. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import GithubSlugger from 'github-slugger';
import MarkdownIt from 'markdown-it';
import { isFixture, listFiles } from './workspace.ts';

export interface Link {
  readonly line: number;
  readonly target: string;
}

export interface Document {
  readonly title: string;
  /** The first sentence after the title, as plain text. */
  readonly summary: string;
  readonly links: readonly Link[];
  /** Names that `#...` may lead to, as GitHub gives them to headings. */
  readonly anchors: ReadonlySet<string>;
}

type Token = ReturnType<MarkdownIt['parse']>[number];

const parser = new MarkdownIt({ html: true });
const htmlLink = /<(?:a|img|source)\s[^>]*?(?:href|src|srcset)="([^"]+)"/g;

export function readDocument(path: string): Document {
  return parseDocument(readFileSync(path, 'utf8'));
}

export function parseDocument(markdown: string): Document {
  const tokens = parser.parse(markdown, {});
  const slugger = new GithubSlugger();
  const anchors = new Set<string>();
  const links: Link[] = [];
  let [title, summary, line] = ['', '', 1];
  tokens.forEach((token, index) => {
    if (token.map) line = token.map[0] + 1; // cells of tables have none: the line of their row
    if (token.type === 'html_block') links.push(...linksOfHtml(token.content, line));
    if (token.type !== 'inline') return;
    links.push(...linksOf(token, line));
    const text = plainText(token);
    if (tokens[index - 1]?.type === 'heading_open') {
      title ||= text;
      anchors.add(slugger.slug(text));
    } else if (title !== '' && summary === '' && tokens[index - 1]?.type === 'paragraph_open') {
      summary = /^.*?[.!?](?=\s|$)/s.exec(text)?.[0] ?? text;
    }
  });
  return { title, summary: summary.replaceAll(/\s+/g, ' '), links, anchors };
}

function linksOf(inline: Token, line: number): Link[] {
  return (inline.children ?? []).flatMap((token) => {
    if (token.type === 'html_inline') return linksOfHtml(token.content, line);
    const target = token.attrGet('href') ?? token.attrGet('src');
    return target === null ? [] : [{ line, target }];
  });
}

function linksOfHtml(html: string, line: number): Link[] {
  return [...html.matchAll(htmlLink)].map(([, target = '']) => ({ line, target }));
}

function plainText(inline: Token): string {
  const parts = (inline.children ?? []).map(({ type, content }) => {
    if (type === 'text' || type === 'code_inline') return content;
    return type === 'softbreak' ? ' ' : '';
  });
  return parts.join('');
}

/** Documents that people read: without fixtures, generated pages and changesets. */
export function listDocuments(root: string): string[] {
  const isRead = (path: string): boolean =>
    (path.endsWith('.md') || path === 'llms.txt') && !isFixture(path) && !/^(docs\/api|\.changeset)\//.test(path);
  return listFiles(root, isRead).map((path) => join(root, path));
}
