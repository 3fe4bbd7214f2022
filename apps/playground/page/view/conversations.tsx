/** The list of conversations: at the side, or over the page on a phone. */
import type { JSX } from 'preact';
import type { Chat } from '../state/chat.js';
import type { Conversation } from '../state/messages.js';

interface ConversationsProps {
  readonly chat: Chat;
  readonly isOpen: boolean;
  readonly onClose: () => void;
}

export function Conversations({ chat, isOpen, onClose }: ConversationsProps): JSX.Element {
  const start = async (): Promise<void> => {
    await chat.startNew();
    onClose();
    document.querySelector<HTMLElement>('#prompt')?.focus();
  };
  return (
    <nav class={isOpen ? 'conversations open' : 'conversations'} aria-label="Conversations">
      <div class="top">
        <button type="button" onClick={() => void start()}>
          New conversation
        </button>
        <button type="button" class="quiet narrow" aria-label="Close the list" onClick={onClose}>
          ✕
        </button>
      </div>
      <ul>
        {chat.conversations.value.map((conversation) => (
          <Entry key={conversation.id} chat={chat} conversation={conversation} onClose={onClose} />
        ))}
      </ul>
    </nav>
  );
}

interface EntryProps {
  readonly chat: Chat;
  readonly conversation: Conversation;
  readonly onClose: () => void;
}

function Entry({ chat, conversation, onClose }: EntryProps): JSX.Element {
  const isCurrent = chat.current.value?.id === conversation.id;
  const open = async (): Promise<void> => {
    await chat.open(conversation);
    onClose();
  };
  return (
    <li>
      <button type="button" class="quiet" aria-current={isCurrent ? 'true' : undefined} onClick={() => void open()}>
        {conversation.title}
      </button>
      <button
        type="button"
        class="quiet"
        aria-label={`Delete "${conversation.title}"`}
        onClick={() => void chat.remove(conversation)}
      >
        ✕
      </button>
    </li>
  );
}
