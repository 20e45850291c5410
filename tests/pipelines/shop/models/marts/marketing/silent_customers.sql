select customer_id, customer_name from {{ ref('stg_customers') }} c
where not exists (select 1 from {{ ref('stg_events') }} e where e.customer_id = c.customer_id)
