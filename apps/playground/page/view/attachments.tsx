/** Files of a message: name and size, and their text when they are opened. */
import type { JSX } from 'preact';
import type { Attachment } from '../state/messages.js';
import { bytes } from '../state/metrics.js';

interface AttachmentListProps {
  readonly attachments: readonly Attachment[];
  /** Absent: they cannot be removed. */
  readonly onRemove?: (index: number) => void;
}

export function AttachmentList({ attachments, onRemove }: AttachmentListProps): JSX.Element | null {
  if (attachments.length === 0) return null;
  return (
    <ul class="attachments" aria-label="Attachments">
      {attachments.map(({ name, sizeBytes, text }, index) => (
        <li key={index}>
          <details>
            <summary>
              {name}, {bytes(sizeBytes)}
            </summary>
            <pre tabIndex={0}>{text}</pre>
          </details>
          {onRemove && (
            <button type="button" class="quiet" aria-label={`Remove ${name}`} onClick={() => onRemove(index)}>
              ✕
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}
