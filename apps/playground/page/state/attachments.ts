/** Files of the user that become part of a message as text. */
import type { Attachment, TextAttachment } from './messages.js';

/** More than any context holds as text that is read by people; larger files are refused before they are read. */
const maxBytes = 4_000_000;

/** @throws {Error} for a file that is no text, or too large */
export async function readText(file: File): Promise<TextAttachment> {
  const { name, size: sizeBytes } = file;
  if (sizeBytes > maxBytes) {
    throw new Error(`${name}: expected a text of at most ${maxBytes / 1e6} MB, got ${(sizeBytes / 1e6).toFixed(1)} MB`);
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes('\0')) return { name, sizeBytes, text };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  throw new Error(`${name}: expected text in UTF-8, got other bytes`);
}

/** A message as the model reads it: its text, and each text file in a fence that the text cannot close. */
export function promptText(content: string, attachments: readonly Attachment[] = []): string {
  const parts = attachments.flatMap((attachment) => {
    if ('image' in attachment) return [];
    const { name, text } = attachment;
    const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([ticks]) => ticks.length));
    const fence = '`'.repeat(longest + 1);
    return [`${name}:\n${fence}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`];
  });
  return [...parts, content].join('\n\n');
}
