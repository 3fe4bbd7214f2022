/** Conversations in IndexedDB: one record per conversation and one per message, so that an answer writes only itself. */
import { openDB, type DBSchema, type IDBPDatabase } from 'idb';
import type { Conversation, Message } from './messages.js';

interface StoredMessage {
  readonly conversationId: string;
  /** Index in the conversation. */
  readonly position: number;
  readonly message: Message;
}

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
  messages: { key: [string, number]; value: StoredMessage };
}

const databaseName = 'winnow-playground';

export interface History {
  /** Newest first. */
  conversations(): Promise<Conversation[]>;
  messages(conversationId: string): Promise<Message[]>;
  saveConversation(conversation: Conversation): Promise<void>;
  saveMessage(conversationId: string, position: number, message: Message): Promise<void>;
  /** Removes the messages from `position` on. */
  truncate(conversationId: string, position: number): Promise<void>;
  remove(conversationId: string): Promise<void>;
}

/** @throws {DOMException} where the browser stores nothing, as in some private windows */
export async function openHistory(): Promise<History> {
  const database = await openDB<Schema>(databaseName, 1, {
    upgrade(opened) {
      opened.createObjectStore('conversations', { keyPath: 'id' });
      opened.createObjectStore('messages', { keyPath: ['conversationId', 'position'] });
    },
  });
  return new IndexedHistory(database);
}

class IndexedHistory implements History {
  readonly #database: IDBPDatabase<Schema>;

  constructor(database: IDBPDatabase<Schema>) {
    this.#database = database;
  }

  async conversations(): Promise<Conversation[]> {
    const all = await this.#database.getAll('conversations');
    return all.sort((a, b) => b.updatedAt - a.updatedAt);
  }

  async messages(conversationId: string): Promise<Message[]> {
    const stored = await this.#database.getAll('messages', rangeFrom(conversationId, 0));
    return stored.map(({ message }) => message);
  }

  async saveConversation(conversation: Conversation): Promise<void> {
    await this.#database.put('conversations', conversation);
  }

  async saveMessage(conversationId: string, position: number, message: Message): Promise<void> {
    await this.#database.put('messages', { conversationId, position, message });
  }

  async truncate(conversationId: string, position: number): Promise<void> {
    await this.#database.delete('messages', rangeFrom(conversationId, position));
  }

  async remove(conversationId: string): Promise<void> {
    await this.#database.delete('conversations', conversationId);
    await this.truncate(conversationId, 0);
  }
}

function rangeFrom(conversationId: string, position: number): IDBKeyRange {
  return IDBKeyRange.bound([conversationId, position], [conversationId, Number.MAX_SAFE_INTEGER]);
}

/** History that lasts as long as the page. */
export function createMemoryHistory(): History {
  const conversations = new Map<string, Conversation>();
  const messages = new Map<string, Message[]>();
  return {
    conversations: async () => [...conversations.values()].sort((a, b) => b.updatedAt - a.updatedAt),
    messages: async (id) => messages.get(id) ?? [],
    async saveConversation(conversation) {
      conversations.set(conversation.id, conversation);
    },
    async saveMessage(id, position, message) {
      const list = messages.get(id) ?? [];
      messages.set(id, list);
      list[position] = message;
    },
    async truncate(id, position) {
      messages.get(id)?.splice(position);
    },
    async remove(id) {
      conversations.delete(id);
      messages.delete(id);
    },
  };
}
