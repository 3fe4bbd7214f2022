/**
 * Claims of examples. A comment after a `console.log` call, on its last line, is what the call prints, with `...`
 * standing for anything and white space counting as one space.
 */
import { parseFile, walk } from '../workspace/imports.ts';

export interface Claim {
  /** Line of the document. */
  readonly line: number;
  /** Text of the comment. */
  readonly text: string;
}

/** What the `console.log` call of a line printed, once per call. */
export interface Print {
  readonly line: number;
  readonly text: string;
}

export interface ClaimedCode {
  /** The example with each claimed `console.log` replaced by one that also appends a `Print` to the report. */
  readonly code: string;
  readonly claims: readonly Claim[];
}

/**
 * @param code an example, in TypeScript
 * @param firstLine line of the document where `code` begins
 * @param report path of a file that receives a `Print` as JSON per line while the program runs
 */
export function recordClaims(code: string, firstLine: number, report: string): ClaimedCode {
  const { program, comments } = parseFile('example.ts', code);
  const lineOf = (offset: number): number => firstLine + code.slice(0, offset).split('\n').length - 1;
  const claims: Claim[] = [];
  const calls: { readonly start: number; readonly end: number; readonly line: number }[] = [];
  walk(program, (node) => {
    if (node.type !== 'CallExpression') return;
    const { start, end } = node['callee'] as { readonly start: number; readonly end: number };
    if (code.slice(start, end) !== 'console.log') return;
    const callEnd = node['end'] as number;
    const comment = comments.find(
      (other) => other.start >= callEnd && !code.slice(callEnd, other.start).includes('\n'),
    );
    if (comment?.type !== 'Line') return;
    const line = lineOf(comment.start);
    claims.push({ line, text: comment.value.trim() });
    calls.push({ start, end, line });
  });
  let recorded = code;
  for (const { start, end, line } of calls.toReversed()) {
    recorded = `${recorded.slice(0, start)}recordPrint(${line})${recorded.slice(end)}`;
  }
  return { code: claims.length === 0 ? code : `${recorded}\n${recorder(report)}`, claims };
}

function recorder(report: string): string {
  return `
import { appendFileSync } from 'node:fs';
import { format } from 'node:util';

function recordPrint(line: number) {
  return (...values: unknown[]) => {
    console.log(...values);
    appendFileSync(${JSON.stringify(report)}, JSON.stringify({ line, text: format(...values) }) + '\\n');
  };
}
`;
}

/** @returns claims that differ from what was printed, and those whose line printed nothing */
export function checkClaims(document: string, claims: readonly Claim[], prints: readonly Print[]): string[] {
  return claims.flatMap((claim) => {
    const printed = prints.filter(({ line }) => line === claim.line);
    if (printed.length === 0)
      return [`${document}:${claim.line}: the comment says "${claim.text}", nothing is printed`];
    const wrong = printed.find(({ text }) => !matchesClaim(claim.text, text));
    return wrong
      ? [`${document}:${claim.line}: the comment says "${claim.text}", the line prints "${oneSpaced(wrong.text)}"`]
      : [];
  });
}

/** Whether a text is the claimed one, with `...` for anything and white space as one space. */
export function matchesClaim(claim: string, text: string): boolean {
  const parts = oneSpaced(claim).split('...');
  const pattern = parts.map((part) => part.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')).join('.*');
  const optional = pattern.replace(/^\.\* /, '(.* )?'); // a first line of `...` also stands for none
  return new RegExp(`^${optional}$`, 'u').test(oneSpaced(text));
}

function oneSpaced(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim();
}
