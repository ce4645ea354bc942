// What the token of this page may do, once the console has said it.

export const rights = { act: false };
