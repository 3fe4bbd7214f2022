/** The calls of an answer: name and state, and arguments and result when they are opened. */
import { visibleText } from '@winnow/mcp';
import type { JSX } from 'preact';
import type { MadeCall } from '../../state/messages.js';

interface CallListProps {
  readonly calls: readonly MadeCall[];
  /** Whether calls without a result are being made, or wait for it. */
  readonly isRunning: boolean;
}

export function CallList({ calls, isRunning }: CallListProps): JSX.Element | null {
  if (calls.length === 0) return null;
  return (
    <ul class="calls" aria-label="Calls of tools">
      {calls.map(({ name, arguments: text, result }, index) => (
        <li key={index}>
          <details>
            <summary>
              {name}: {result === undefined ? (isRunning ? 'waiting' : 'not made') : firstLine(result)}
            </summary>
            <p>Arguments</p>
            <pre tabIndex={0}>{visibleText(text)}</pre>
            {result !== undefined && <p>Result</p>}
            {result !== undefined && <pre tabIndex={0}>{visibleText(result)}</pre>}
          </details>
        </li>
      ))}
    </ul>
  );
}

const maxSummaryLength = 80;

function firstLine(result: string): string {
  const [line = ''] = visibleText(result.trim()).split('\n');
  return line.length <= maxSummaryLength ? line : `${line.slice(0, maxSummaryLength - 1)}…`;
}
