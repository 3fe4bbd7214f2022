/** Files of a message: name and size, and their text when they are opened; images as they are. */
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
      {attachments.map((attachment, index) => (
        <li key={index}>
          <Shown attachment={attachment} />
          {onRemove && (
            <button
              type="button"
              class="quiet"
              aria-label={`Remove ${attachment.name}`}
              onClick={() => onRemove(index)}
            >
              ✕
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

function Shown({ attachment }: { readonly attachment: Attachment }): JSX.Element {
  const caption = `${attachment.name}, ${bytes(attachment.sizeBytes)}`;
  if ('image' in attachment) {
    return (
      <figure>
        <img src={attachment.image} alt={`Attached image ${attachment.name}`} />
        <figcaption>{caption}</figcaption>
      </figure>
    );
  }
  return (
    <details>
      <summary>{caption}</summary>
      <pre tabIndex={0}>{attachment.text}</pre>
    </details>
  );
}
