"""What files hold, for people: RocketMQ's and this project's, by the code that reads them."""
