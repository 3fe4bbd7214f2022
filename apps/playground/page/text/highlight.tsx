/** Colors of code: a tree of nodes from highlight.js's grammars, never HTML. */
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import css from 'highlight.js/lib/languages/css';
import go from 'highlight.js/lib/languages/go';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { createLowlight } from 'lowlight';
import type { ComponentChildren } from 'preact';

const lowlight = createLowlight({
  bash,
  c,
  cpp,
  css,
  go,
  java,
  javascript,
  json,
  markdown,
  python,
  rust,
  sql,
  typescript,
  xml,
  yaml,
});

interface TreeNode {
  readonly type: string;
  readonly value?: string;
  readonly properties?: { readonly className?: unknown };
  readonly children?: readonly TreeNode[];
}

/** @returns undefined for a language without a grammar */
export function highlight(code: string, language: string): ComponentChildren | undefined {
  if (!lowlight.registered(language.toLowerCase())) return undefined;
  return (lowlight.highlight(language.toLowerCase(), code).children as readonly TreeNode[]).map(nodeOf);
}

function nodeOf({ type, value, properties, children = [] }: TreeNode): ComponentChildren {
  if (type === 'text') return value;
  const classes = Array.isArray(properties?.className) ? properties.className.join(' ') : '';
  return <span class={classes}>{children.map(nodeOf)}</span>;
}
