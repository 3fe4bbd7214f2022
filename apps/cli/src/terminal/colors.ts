/** Colors and other styles of terminals. */
import { styleText } from 'node:util';
import type { CliIo, OutputStream } from './io.js';

type Format = Parameters<typeof styleText>[0];

/** Styles a text, or returns it unchanged where there are no colors. Styles may be nested. */
export type Paint = (format: Format, text: string) => string;

export const plain: Paint = (_format, text) => text;
const colored: Paint = (format, text) => styleText(format, text, { validateStream: false });

/**
 * A terminal has colors unless NO_COLOR (https://no-color.org) is set or TERM is `dumb`. FORCE_COLOR overrides both, as
 * in Node: `0` and `false` turn colors off, anything else turns them on.
 */
export function hasColors(stream: Pick<OutputStream, 'isTTY'>, env: CliIo['env']): boolean {
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined) return forced !== '0' && forced !== 'false';
  return stream.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
}

export function paintOf(stream: Pick<OutputStream, 'isTTY'>, env: CliIo['env']): Paint {
  return hasColors(stream, env) ? colored : plain;
}
